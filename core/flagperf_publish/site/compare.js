'use strict';
// Ticked rows side by side. Differences and ratios only: a verdict needs repeats, and `flagperf compare` gives it.

const SUBJECTS = ['hardware', 'precision', 'configuration', 'environment', 'software'];
const NAMED = ['case_version', 'profile', 'model', 'dataset', 'recording'];

function comparison(chosen) {
  const sides = chosen.map((row, index) => ({ row, letter: String.fromCharCode(65 + index) }));
  const found = sides.slice(1).flatMap((side) => obstacles(sides[0], side));
  const back = element('button', { type: 'button', onclick: () => { view.compares = false; draw(); } }, `← ${text('site.back')}`);
  return [
    element('div', { class: 'above' }, back),
    element('h2', {}, text('site.side_by_side')),
    ...(found.length ? [element('div', { class: 'caution' }, element('strong', {}, text('label.compare_obstacles')), element('ul', {}, ...found.map((each) => element('li', {}, each))))] : []),
    element('div', { class: 'box' }, element('table', { class: 'sides' }, sidesHead(sides),
      ...SUBJECTS.map((subject) => differences(sides, subject)), results(sides))),
    element('p', { class: 'foot' }, text(sides.some(({ row }) => row.status === 'published') ? 'site.no_verdict_published' : 'site.no_verdict')),
    element('pre', {}, command(sides)),
  ];
}

function command(sides) {
  const simulated = sides.some(({ row }) => isSimulated(row)) ? ' --allow-simulated' : '';
  return `flagperf compare ${sides.map(({ row }) => row.name).join(' ')}${simulated}`;
}

function isSimulated(row) {
  return (plain(row, 'labels') || '').split(' ').includes('simulated');
}

// --- what makes them incomparable ---

function obstacles(baseline, other) {
  const [a, b] = [baseline.row, other.row];
  if (a.case !== b.case) return [text('site.other_case', { a: baseline.letter, b: other.letter, case: a.case, other: b.case })];
  const simulated = [baseline, other].filter((side) => isSimulated(side.row)).map((side) => text('compare.simulated', { side: side.letter }));
  if (a.status === 'published' || b.status === 'published') {
    const unpublished = [baseline, other].filter((side) => !plain(side.row, 'is_published'));
    return [...simulated, ...unpublished.map((side) => text('compare.unpublished', { side: side.letter, profile: side.row.profile }))];
  }
  const contrasts = Object.keys(a.block.identity).flatMap((name) => {
    const [value, different] = [a, b].map((row) => valueAt(row.block.identity[name], row.place));
    if (value === different || value === null || different === null) return [];
    if (name === 'files') return [text('site.other_files', { a: baseline.letter, b: other.letter })];
    const said = NAMED.includes(name) ? text(`compare.name_${name}`) : name;
    return [text('compare.contrast', { name: said, value, a: baseline.letter, other: different, b: other.letter })];
  });
  return [...simulated, ...contrasts];
}

// --- the table ---

function sidesHead(sides) {
  const cells = sides.map(({ row, letter }, index) => element('th', { scope: 'col' },
    element('div', {}, element('b', { class: 'letter' }, letter), ' ', titled(row), index ? '' : element('span', { class: 'tag' }, text('site.baseline'))),
    element('div', { class: 'sub' }, sourceOf(row)),
    element('div', { class: 'sub' }, gradeOf(row), ...labels(row))));
  return element('thead', {}, element('tr', {}, element('th'), ...cells));
}

function section(title, sides, lines) {
  if (!lines.length) return '';
  return element('tbody', {}, element('tr', { class: 'section' }, element('th', { colspan: sides.length + 1 }, title)), ...lines);
}

function line(name, cells, title) {
  return element('tr', {}, element('th', { scope: 'row', title }, name), ...cells);
}

function differences(sides, subject) {
  const names = new Set(sides.flatMap(({ row }) => Object.keys(row.block.setup).filter((name) => name.startsWith(`${subject}/`))));
  const lines = [...names].sort(inOrder.compare).flatMap((name) => {
    const values = sides.map(({ row }) => (row.block.setup[name] ? valueAt(row.block.setup[name], row.place) : null));
    if (new Set(values.filter((value) => value !== null)).size < 2) return [];
    return [line(name.slice(subject.length + 1), values.map((value) => element('td', { class: value === null ? 'none' : '' }, value ?? '–')))];
  });
  if (subject === 'configuration') lines.unshift(...changes(sides));
  return section(text('site.differs', { subject: text(`label.compare_${subject}`) }), sides, lines);
}

// Of a published result, all that is known of its configuration.
function changes(sides) {
  const values = sides.map(({ row }) => plain(row, 'changes') || '');
  if (!sides.some(({ row }) => row.status === 'published') || new Set(values).size < 2) return [];
  return [line(text('site.changes'), values.map((value) => element('td', { class: value ? '' : 'none' }, value || '–')))];
}

function results(sides) {
  const baseline = sides[0].row;
  const metrics = new Map(sides.flatMap(({ row }) => row.block.metrics.map((metric) => [metric.name, metric])));
  const lines = [...metrics.values()].flatMap((metric) => {
    const figures = sides.map(({ row }) => figureOf(row, metric.name));
    if (!figures.some((figure) => figure && figure.value !== null)) return [];
    const cells = sides.map(({ row, letter }, index) => resultCell(metric, figures[index], index && row.case === baseline.case ? ratio(figures[0], figures[index], letter) : ''));
    return [line(metric.name, cells, metric.title)];
  });
  return section(text('site.results'), sides, lines);
}

function resultCell(metric, figure, compared) {
  if (!figure || figure.value === null) return element('td', { class: 'none', title: figure ? site.codes[figure.reason] : undefined }, '–', figure ? element('div', { class: 'sub' }, figure.reason) : '');
  return element('td', {}, element('span', { class: 'value' }, figure.text), metric.unit ? ` ${metric.unit}` : '', compared, ...marks(figure));
}

function ratio(own, other, letter) {
  if (!own || !other || !(own.value > 0) || !(other.value > 0)) return '';
  return element('div', { class: 'sub ratio' }, text('site.ratio', { side: letter, ratio: (other.value / own.value).toPrecision(4) }));
}
