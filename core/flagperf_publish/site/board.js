// The board: filters, order, rows. Every text is set as text; nothing of a run is ever parsed as markup.

const FACETS = ['case', 'vendor', 'card', 'precision', 'shape', 'profile', 'status', 'grade'];
const MOST_PRINTED = 2000;
const MOST_TICKED = 8;

const site = JSON.parse(document.getElementById('data').textContent);
const inOrder = new Intl.Collator('en', { numeric: true });
const rows = site.cases.flatMap(rowsOf);
const byName = new Map(rows.map((row) => [row.name, row]));
const view = { filters: {}, words: '', sort: '', down: true, ticked: [], compares: false };
const parts = {};
let shown = [];
let numDrawn = 0;

// --- data ---

function rowsOf(block) {
  return Array.from({ length: block.size }, (_, place) => {
    const row = { block, place, case: block.name };
    for (const name of [...FACETS.slice(1), 'name', 'created']) row[name] = valueAt(block.plain[name], place) || '';
    return row;
  });
}

function valueAt(column, place) {
  return column.of[column.at ? column.at[place] : 0];
}

function plain(row, name) {
  return valueAt(row.block.plain[name], row.place);
}

function figureOf(row, name) {
  const column = row.block.figures[name];
  const found = column ? valueAt(column, row.place) : null;
  return found ? { text: found[0], value: found[1], marks: found[2].split(' ').filter(Boolean), reason: found[3] } : null;
}

function mainFigure(row) {
  for (const metric of row.block.metrics.filter((each) => each.is_headline)) {
    const figure = figureOf(row, metric.name);
    if (figure && figure.value !== null) return { metric, figure };
  }
  return null;
}

function wordsOf(row) {
  row.words ??= [row.name, row.case, row.block.title, row.vendor, row.card, plain(row, 'changes'), plain(row, 'tags'),
    plain(row, 'note'), plain(row, 'source')].join(' ').toLowerCase();
  return row.words;
}

// --- elements ---

function text(code, values = {}) {
  return site.texts[code].replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.filter((child) => child !== '' && child !== null && child !== undefined));
  return made;
}

function facetText(facet, value) {
  const codes = { grade: `label.grade_${value}`, status: value === 'published' ? 'site.published' : `web.status_${value}` };
  if (codes[facet] in site.texts) return text(codes[facet]);
  return value || text('site.none');
}

// --- what is shown ---

function choose() {
  const words = view.words.toLowerCase().split(/\s+/).filter(Boolean);
  const set = FACETS.filter((facet) => view.filters[facet] !== undefined);
  const counts = Object.fromEntries(FACETS.map((facet) => [facet, new Map()]));
  shown = [];
  for (const row of rows) {
    if (words.length && !words.every((word) => wordsOf(row).includes(word))) continue;
    const missed = set.filter((facet) => row[facet] !== view.filters[facet]);
    if (!missed.length) shown.push(row);
    if (missed.length > 1) continue;
    // Of another choice in one filter, what the other filters leave.
    for (const facet of missed.length ? missed : FACETS) {
      counts[facet].set(row[facet], (counts[facet].get(row[facet]) || 0) + 1);
    }
  }
  sortShown();
  return counts;
}

// Another profile is other work: its figures are never sorted among those of this one. The published profile comes first.
function sortShown() {
  const [key, down] = currentSort();
  const sign = down ? -1 : 1;
  const name = key.startsWith('metric:') ? key.slice(7) : '';
  const [profiles, dates, texts] = [ranks('profile'), ranks('created'), name ? null : ranks(key)];
  const keyed = shown.map((row) => ({
    row,
    group: name ? (plain(row, 'is_published') ? 0 : 1) * profiles.size + profiles.get(row.profile) : 0,
    value: name ? figureOf(row, name)?.value ?? null : row[key] ? texts.get(row[key]) : null,
    date: dates.get(row.created),
  }));
  keyed.sort((a, b) => {
    if (a.group !== b.group) return a.group - b.group;
    if (a.value === null || b.value === null) return (a.value === null) - (b.value === null) || b.date - a.date;
    return sign * (a.value - b.value) || b.date - a.date;
  });
  shown = keyed.map(({ row }) => row);
}

// The place of each text among all of a column. Numbers compare much faster than texts.
function ranks(name) {
  parts.ranks ??= new Map();
  if (!parts.ranks.has(name)) {
    const texts = [...new Set(rows.map((row) => row[name]))].sort(inOrder.compare);
    parts.ranks.set(name, new Map(texts.map((each, place) => [each, place])));
  }
  return parts.ranks.get(name);
}

function currentBlock() {
  const name = site.cases.length === 1 ? site.cases[0].name : view.filters.case;
  return site.cases.find((block) => block.name === name);
}

function currentSort() {
  const block = currentBlock();
  const known = !view.sort.startsWith('metric:') || block?.metrics.some((each) => `metric:${each.name}` === view.sort);
  if (view.sort && known) return [view.sort, view.down];
  const first = block?.metrics.find((metric) => metric.better);
  return first ? [`metric:${first.name}`, first.better > 0] : ['created', true];
}

function tick(row, isTicked) {
  view.ticked = view.ticked.filter((name) => name !== row.name);
  if (isTicked) view.ticked.push(row.name);
  drawTicked();
  remember();
}

// --- drawing ---

function draw() {
  drawFacets(choose());
  drawTable();
  parts.count.textContent = text('site.count', { shown: shown.length.toLocaleString('en'), all: rows.length.toLocaleString('en') });
  parts.title.textContent = currentBlock()?.title ?? '';
  parts.title.hidden = !parts.title.textContent;
  parts.mixed.textContent = mixture();
  parts.mixed.hidden = !parts.mixed.textContent;
  drawTicked();
  remember();
}

function drawFacets(counts) {
  for (const facet of FACETS) {
    const chosen = view.filters[facet];
    const values = [...counts[facet].keys()];
    if (chosen !== undefined && !values.includes(chosen)) values.push(chosen);
    values.sort((a, b) => inOrder.compare(facetText(facet, a), facetText(facet, b)));
    const options = values.map((value) => {
      const label = text('site.option', { name: facetText(facet, value), count: (counts[facet].get(value) || 0).toLocaleString('en') });
      return new Option(label, `=${value}`, false, value === chosen);
    });
    parts[facet].replaceChildren(new Option(text('site.all'), '', false, chosen === undefined), ...options);
    parts[facet].classList.toggle('set', chosen !== undefined);
  }
  parts.reset.hidden = !Object.keys(view.filters).length && !view.words;
}

function mixture() {
  if (!currentBlock()) return '';
  const different = ['shape', 'precision'].filter((name) => new Set(shown.map((row) => row[name])).size > 1);
  const named = different.map((name) => text(`site.several_${name}`));
  return named.length ? text('site.mixed', { what: named.join(text('site.separator')) }) : '';
}

function drawTicked() {
  const isFull = view.ticked.length >= MOST_TICKED;
  for (const box of parts.table.querySelectorAll('tbody input')) {
    box.checked = view.ticked.includes(box.dataset.name);
    box.disabled = isFull && !box.checked;
  }
  parts.bar.hidden = !view.ticked.length || view.compares;
  parts.ticked.textContent = text(isFull ? 'site.ticked_full' : 'site.ticked', { count: view.ticked.length });
  parts.compare.disabled = view.ticked.length < 2;
  if (view.ticked.length < 2) view.compares = false;
  parts.list.hidden = view.compares;
  parts.comparison.hidden = !view.compares;
  parts.comparison.replaceChildren(...(view.compares ? comparison(view.ticked.map((name) => byName.get(name))) : []));
}

// --- the reader's choices ---

function setFilter(facet, value) {
  if (value === undefined) delete view.filters[facet];
  else view.filters[facet] = value;
  if (facet === 'case') view.sort = '';
  draw();
}

function remember() {
  const kept = new URLSearchParams(view.filters);
  if (view.words) kept.set('words', view.words);
  if (view.sort) kept.set('sort', (view.down ? '-' : '') + view.sort);
  for (const name of view.ticked) kept.append('ticked', name);
  if (view.compares) kept.set('compare', 'yes');
  history.replaceState(null, '', `#${kept}`);
}

function recall() {
  const kept = new URLSearchParams(location.hash.slice(1));
  view.filters = Object.fromEntries(FACETS.filter((facet) => kept.has(facet)).map((facet) => [facet, kept.get(facet)]));
  view.words = kept.get('words') || '';
  const sort = kept.get('sort') || '';
  view.down = sort.startsWith('-');
  view.sort = [...PLAIN_COLUMNS, ''].includes(sort.replace(/^-/, '')) || /^-?metric:/.test(sort) ? sort.replace(/^-/, '') : '';
  view.ticked = kept.getAll('ticked').filter((name) => byName.has(name)).slice(0, MOST_TICKED);
  view.compares = kept.has('compare');
  parts.words.value = view.words;
  draw();
}

function start() {
  for (const facet of FACETS) {
    parts[facet] = element('select', { onchange: (event) => setFilter(facet, event.target.value ? event.target.value.slice(1) : undefined) });
  }
  parts.words = element('input', { type: 'search', oninput: (event) => { view.words = event.target.value; draw(); } });
  parts.reset = element('button', { type: 'button', onclick: () => { view.words = parts.words.value = ''; view.filters = {}; view.sort = ''; draw(); } }, text('site.reset'));
  parts.count = element('p', { class: 'count', role: 'status' });
  parts.mixed = element('p', { class: 'caution' });
  parts.title = element('h2', { class: 'case' });
  parts.sort = element('select', { onchange: (event) => { const column = parts.columns.find((each) => each.name === event.target.value); sortBy(column, isDownFirst(column)); } });
  parts.direction = element('button', { type: 'button', 'aria-label': text('site.turn'), onclick: () => { const [key, down] = currentSort(); sortBy({ name: key }, !down); } });
  parts.table = element('table', { class: 'rows' });
  parts.nothing = element('p', { class: 'nothing' }, text('site.nothing'));
  parts.more = element('button', { type: 'button', class: 'more', onclick: drawMore });
  parts.ticked = element('span');
  parts.compare = element('button', { type: 'button', class: 'primary', onclick: () => { view.compares = true; draw(); scrollTo(0, 0); } }, text('site.compare'));
  parts.bar = element('div', { class: 'bar-ticked' }, parts.ticked, parts.compare,
    element('button', { type: 'button', onclick: () => { view.ticked = []; draw(); } }, text('site.clear')));
  parts.comparison = element('div', { class: 'comparison' });
  const labelled = [...FACETS, 'words'].map((name) => element('label', { class: ['case', 'words'].includes(name) ? 'wide' : undefined }, element('span', {}, text(`site.filter_${name}`)), parts[name]));
  parts.list = element('div', {}, element('div', { class: 'card filters' }, ...labelled), parts.title,
    element('div', { class: 'above' }, parts.count, parts.reset, element('label', { class: 'phone' }, text('site.sort'), parts.sort, parts.direction)), parts.mixed, element('div', { class: 'box' }, parts.table), parts.nothing, parts.more);
  document.getElementById('board').append(parts.list, parts.comparison, parts.bar);
  const seeing = new IntersectionObserver((seen) => {
    if (!seen.some((each) => each.isIntersecting)) return;
    drawMore();
    seeing.unobserve(parts.more); // observed anew, it says again if it can still be seen
    seeing.observe(parts.more);
  }, { rootMargin: '600px' });
  seeing.observe(parts.more);
  addEventListener('beforeprint', () => { while (numDrawn < Math.min(shown.length, MOST_PRINTED)) drawMore(); });
  addEventListener('hashchange', recall);
  recall();
}

start();
