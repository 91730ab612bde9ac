// The table: heads, rows and cells, drawn as the reader comes to them.

// What comes after the metrics of a case may be off screen: that a run did not succeed is said below its card too.
const PLAIN_COLUMNS = ['card', 'case', 'created', 'grade', 'shape', 'precision', 'profile', 'main', 'metrics', 'status', 'name'];
const BATCH = 40;
const DOTS = { recomputable: '●●●', logged: '●●○', typed_by_hand: '●○○' };

function columns() {
  const block = currentBlock();
  return PLAIN_COLUMNS.flatMap((name) => {
    if (name === 'metrics') return block ? block.metrics.map((metric) => ({ name: `metric:${metric.name}`, metric })) : [];
    if (name === 'case' || name === 'main') return block ? [] : [{ name }];
    return [{ name }];
  });
}

function drawTable() {
  const wanted = columns();
  const [key, down] = currentSort();
  const heads = wanted.map((column) => headCell(column, key, down));
  parts.table.replaceChildren(
    element('thead', {}, element('tr', {}, element('th', { class: 'tick' }, element('span', { class: 'hidden' }, text('site.compare'))), ...heads)),
    element('tbody'),
  );
  parts.columns = wanted;
  parts.sorted = key;
  drawSort(wanted, key, down);
  parts.groups = key.startsWith('metric:') ? groups(key.slice(7)) : new Map();
  numDrawn = 0;
  drawMore();
  parts.nothing.hidden = shown.length > 0;
}

// Of the rows of each profile: how many, and the highest value of the metric that they are sorted by.
function groups(name) {
  const found = new Map();
  for (const row of shown) {
    const group = found.get(row.profile) ?? { size: 0, best: 0 };
    found.set(row.profile, { size: group.size + 1, best: Math.max(group.best, figureOf(row, name)?.value ?? 0) });
  }
  return found;
}

function groupHead(row, before) {
  if (parts.groups.size < 2 || row.profile === before?.profile) return [];
  const title = text('site.group', { profile: row.profile || text('site.none'), count: parts.groups.get(row.profile).size.toLocaleString('en') });
  return [element('tr', { class: 'group' }, element('th', { colspan: parts.columns.length + 1, scope: 'rowgroup' }, title))];
}

function headCell(column, key, down) {
  const metric = column.metric;
  const isSorted = column.name === key;
  const attributes = { class: metric ? (metric.is_headline ? 'num star' : 'num') : '', scope: 'col', title: metric?.title };
  if (isSorted) attributes['aria-sort'] = down ? 'descending' : 'ascending';
  if (column.name === 'main') return element('th', { ...attributes, class: 'num' }, headText(column));
  const arrow = element('span', { class: 'arrow', 'aria-hidden': 'true' }, isSorted ? (down ? '↓' : '↑') : '');
  const sort = () => sortBy(column, isSorted ? !down : isDownFirst(column));
  return element('th', attributes, element('button', { type: 'button', onclick: sort }, headText(column), arrow),
    metric?.unit ? element('small', {}, metric.unit) : '');
}

function headText(column) {
  return column.metric ? column.metric.name : text(`site.head_${column.name}`);
}

function isDownFirst(column) {
  return column.metric ? column.metric.better >= 0 : column.name === 'created';
}

function sortBy(column, down) {
  view.down = down;
  view.sort = column.name;
  draw();
}

// On a phone, rows are cards without heads: this takes their place.
function drawSort(wanted, key, down) {
  const known = wanted.filter((column) => column.name !== 'main');
  parts.sort.replaceChildren(...known.map((column) => new Option(headText(column), column.name, false, column.name === key)));
  parts.direction.textContent = down ? '↓' : '↑';
}

function drawMore() {
  const batch = shown.slice(numDrawn, numDrawn + BATCH);
  parts.table.tBodies[0].append(...batch.flatMap((row, index) => [...groupHead(row, shown[numDrawn + index - 1]), rowElement(row)]));
  numDrawn += batch.length;
  parts.more.hidden = numDrawn >= shown.length;
  parts.more.textContent = text('site.more_rows', { count: (shown.length - numDrawn).toLocaleString('en') });
}

function rowElement(row) {
  const box = element('input', { type: 'checkbox', 'aria-label': text('site.tick', { name: row.name }), 'data-name': row.name });
  box.checked = view.ticked.includes(row.name);
  box.disabled = !box.checked && view.ticked.length >= MOST_TICKED;
  box.addEventListener('change', () => tick(row, box.checked));
  const made = element('tr', { class: row.status === 'published' ? 'published' : '' }, element('td', { class: 'tick' }, element('label', {}, box)));
  made.append(...parts.columns.map((column) => {
    const cell = column.metric ? figureCell(row, column.metric) : CELLS[column.name](row);
    cell.dataset.head = column.metric?.unit ? `${column.metric.name}, ${column.metric.unit}` : headText(column);
    return cell;
  }));
  return made;
}

const CELLS = {
  card: (row) => element('td', { class: 'short card-cell' }, titled(row),
    element('div', { class: 'sub' }, row.vendor, ...labels(row)), hasFailed(row) ? element('div', {}, statusPill(row)) : ''),
  case: (row) => element('td', { class: 'short' }, element('button', { type: 'button', class: 'link', onclick: () => setFilter('case', row.case) }, row.case)),
  shape: (row) => element('td', { class: 'short' }, row.shape),
  precision: (row) => element('td', { class: 'short' }, row.precision),
  profile: (row) => element('td', { class: 'profile' }, row.profile || '–', element('div', { class: 'sub' }, plain(row, 'changes') || '')),
  main: (row) => {
    const found = mainFigure(row);
    if (!found) return element('td', { class: 'num none' }, '–');
    return element('td', { class: 'num' }, element('strong', {}, found.figure.text), ` ${found.metric.unit}`, element('div', { class: 'sub' }, found.metric.name, ...marks(found.figure)));
  },
  status: (row) => element('td', { class: row.status === 'published' ? 'none' : 'short status' }, statusPill(row), plain(row, 'reason') ? element('div', { class: 'sub' }, plain(row, 'reason')) : ''),
  grade: (row) => element('td', { class: 'short' }, gradeOf(row)),
  created: (row) => element('td', { class: row.created ? 'short' : 'none' }, row.created.slice(0, 10) || '–'),
  name: (row) => element('td', { class: 'source' }, sourceOf(row), element('div', { class: 'sub' }, plain(row, 'tags') || '', plain(row, 'note') ? element('div', {}, plain(row, 'note')) : '')),
};

function titled(row) {
  if (row.status === 'published') return element('strong', {}, row.card || '–');
  return element('a', { href: pageOf(row) }, element('strong', {}, row.card || '–'));
}

function pageOf(row) {
  return `runs/${encodeURIComponent(row.name)}.html`;
}

function labels(row) {
  const found = (plain(row, 'labels') || '').split(' ').filter(Boolean);
  const names = row.status === 'published' ? ['published', ...found] : found;
  return names.map((name) => element('span', { class: name === 'published' ? 'tag' : 'mark', title: name === 'unverified' ? plain(row, 'problem') : undefined }, text(name === 'published' ? 'site.published' : `site.label_${name}`)));
}

function hasFailed(row) {
  return !['succeeded', 'published'].includes(row.status);
}

// Why it ended so is long: a reader sees it where they point at it, on a phone below it, and on the page of the run.
function statusPill(row) {
  if (row.status === 'published') return '–';
  return element('span', { class: `pill ${hasFailed(row) ? 'bad' : 'good'}`, title: plain(row, 'reason') || undefined }, facetText('status', row.status));
}

function gradeOf(row) {
  return element('span', { class: `grade ${row.grade}`, title: text(`site.means_${row.grade}`) }, element('i', { 'aria-hidden': 'true' }, DOTS[row.grade]), facetText('grade', row.grade));
}

function sourceOf(row) {
  if (row.status !== 'published') return element('a', { href: pageOf(row), class: 'mono' }, row.name);
  const source = plain(row, 'source') || '–', link = plain(row, 'link');
  return link ? element('a', { href: link, rel: 'noopener noreferrer' }, source) : element('span', {}, source);
}

function figureCell(row, metric) {
  const figure = figureOf(row, metric.name);
  if (!figure) return element('td', { class: 'num none' }, '–');
  if (figure.value === null) return element('td', { class: 'num none', title: site.codes[figure.reason] }, '–', element('div', { class: 'sub' }, figure.reason));
  const cell = element('td', { class: 'num' }, metric.is_headline ? element('strong', {}, figure.text) : figure.text, ...marks(figure));
  const best = `metric:${metric.name}` === parts.sorted ? parts.groups.get(row.profile).best : 0;
  if (metric.better > 0 && best > 0 && figure.value > 0) {
    const bar = element('span');
    bar.style.width = `${(100 * figure.value) / best}%`;
    cell.append(element('div', { class: 'level', 'aria-hidden': 'true' }, bar));
  }
  return cell;
}

function marks(figure) {
  return figure.marks.map((code) => element('div', { class: 'sub warn', title: site.codes[code] }, code));
}
