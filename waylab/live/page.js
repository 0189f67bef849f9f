'use strict';
// Draws what the events of the lab report. Every text is inserted as text, never as HTML.
const SECONDS_MAX = 600, ROWS_MAX = 200, RETRY_MS = 5000;
const HEIGHT = 210, LEFT = 58, RIGHT = 12, TOP = 24, BOTTOM = 34;
let source = null, run = null, trial = null, seconds = [], stages = [], rows = 0, over = null;

const place = name => document.getElementById(name);
const show = (name, shown) => { place(name).hidden = !shown; };
const write = (name, text) => { place(name).textContent = text; };

function made(kind, text, name) {
  const part = document.createElement(kind);
  if (text !== undefined) part.textContent = text;
  if (name) part.className = name;
  return part;
}

function drawn(kind, values, text) {
  const part = document.createElementNS('http://www.w3.org/2000/svg', kind);
  for (const [key, value] of Object.entries(values)) part.setAttribute(key, value);
  if (text !== undefined) part.textContent = text;
  return part;
}

// Numbers and times as in the report: three digits.
function number(value) {
  return value >= 100 ? Math.round(value).toLocaleString('en') : String(Number(value.toPrecision(3)));
}

function time(ns) {
  if (ns === null || ns === undefined) return '–';
  for (const [size, unit] of [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs']]) if (ns >= size) return number(ns / size) + ' ' + unit;
  return number(ns) + ' ns';
}

function duration(s) {
  const minutes = Math.floor(s / 60);
  return minutes ? minutes + ' min ' + String(s % 60).padStart(2, '0') + ' s' : s + ' s';
}

// Charts.

function canvas(name) {
  const chart = place(name).querySelector('.chart'), width = Math.max(200, chart.clientWidth);
  const title = place(name).querySelector('h3').textContent;
  const svg = drawn('svg', { viewBox: `0 0 ${width} ${HEIGHT}`, role: 'img', 'aria-label': title });
  chart.replaceChildren(svg);
  return [svg, width];
}

function steps(limit, count) {
  const raw = limit / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find(one => one * power >= raw);
  return Array.from({ length: Math.floor(limit / step + 1e-9) + 1 }, (_, index) => index * step);
}

// The seconds that the axis covers: the whole trial, or the last ones of a long trial.
function range() {
  const planned = trial.warm_up_s + trial.test_time_s;
  const last = seconds.length ? seconds[seconds.length - 1].second + 1 : 0, end = Math.max(planned, last, 1);
  return end <= SECONDS_MAX ? [0, end] : [Math.max(0, last - SECONDS_MAX), Math.max(last, SECONDS_MAX)];
}

function axes(svg, width, ticks, label, y) {
  const [from, to] = range(), x = second => LEFT + (width - LEFT - RIGHT) * (second - from) / (to - from);
  for (const tick of ticks) {
    svg.append(drawn('line', { x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick), class: 'grid' }));
    svg.append(drawn('text', { x: LEFT - 6, y: y(tick) + 4, 'text-anchor': 'end' }, label(tick)));
  }
  for (const second of steps(to - from, width < 500 ? 4 : 8)) {
    svg.append(drawn('text', { x: x(from + second), y: HEIGHT - BOTTOM + 16, 'text-anchor': 'middle' }, number(from + second)));
  }
  svg.append(drawn('text', { x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 4, 'text-anchor': 'middle' }, 'time in the trial (s)'));
  if (trial.warm_up_s >= from) {
    svg.append(drawn('line', { x1: x(trial.warm_up_s), x2: x(trial.warm_up_s), y1: TOP, y2: HEIGHT - BOTTOM, class: 'begin' }));
  }
  return x;
}

function line(svg, x, y, value, colour) {
  let path = '', pen = false;
  for (const second of seconds) {
    const one = value(second);
    if (one === null) { pen = false; continue; }
    path += (pen ? 'L' : 'M') + x(second.second + .5).toFixed(1) + ' ' + y(one).toFixed(1);
    // A single second between gaps has no line, only the round end of one.
    if (!pen) path += 'h.01';
    pen = true;
  }
  svg.append(drawn('path', { d: path, stroke: `var(--${colour})`, 'stroke-linecap': 'round' }));
}

function legend(svg, entries) {
  let left = LEFT;
  for (const [text, colour] of entries) {
    svg.append(drawn('line', { x1: left, x2: left + 16, y1: 8, y2: 8, stroke: `var(--${colour})`, 'stroke-width': 2.5 }));
    svg.append(drawn('text', { x: left + 21, y: 12 }, text));
    left += 40 + 7 * text.length;
  }
}

function drawThroughput() {
  const [svg, width] = canvas('chart-throughput'), offered = trial.offered_per_s;
  const highest = Math.max(1, offered || 0, ...seconds.map(second => second.requests)) * 1.05;
  const y = value => HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / highest;
  const x = axes(svg, width, steps(highest, 5), number, y);
  if (offered) svg.append(drawn('line', { x1: LEFT, x2: width - RIGHT, y1: y(offered), y2: y(offered), stroke: 'var(--orange)', 'stroke-dasharray': '4 3' }));
  line(svg, x, y, second => second.requests, 'blue');
  legend(svg, [['requests/s', 'blue'], ...(offered ? [['offered', 'orange']] : [])]);
}

function drawResponse() {
  const values = seconds.flatMap(second => [second.p50_ns, second.p99_ns, second.requests ? second.mean_ns : null]).filter(one => one > 0);
  const [svg, width] = canvas('chart-response');
  if (!values.length) return;
  let low = 10 ** Math.floor(Math.log10(Math.min(...values))), high = 10 ** Math.ceil(Math.log10(Math.max(...values) * 1.001));
  const y = value => HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * Math.log(value / low) / Math.log(high / low);
  const ticks = [];
  for (let power = low; power <= high * 1.001; power *= 10) ticks.push(power);
  if (ticks.length < 4) for (const power of ticks.slice(0, -1)) ticks.push(2 * power, 5 * power);
  const x = axes(svg, width, ticks, time, y);
  const positive = value => value > 0 ? value : null;
  line(svg, x, y, second => positive(second.p50_ns), 'blue');
  line(svg, x, y, second => positive(second.requests ? second.mean_ns : null), 'green');
  line(svg, x, y, second => positive(second.p99_ns), 'orange');
  legend(svg, [['p50', 'blue'], ['mean', 'green'], ['p99', 'orange']]);
}

function drawStages() {
  const [svg, width] = canvas('chart-stages'), left = 64, right = 72, high = (HEIGHT - 8) / stages.length;
  const highest = Math.max(1, ...stages.flatMap(one => [one.last_ns || 0, one.window_ns || 0]));
  const x = value => left + (width - left - right) * value / highest;
  stages.forEach((one, index) => {
    const top = 4 + index * high, middle = top + high / 2;
    svg.append(drawn('text', { x: left - 6, y: middle + 4, 'text-anchor': 'end' }, one.stage));
    svg.append(drawn('rect', { x: left, y: top + 3, width: Math.max(0, x(one.last_ns || 0) - left), height: high - 6, fill: 'var(--blue)' }));
    if (one.window_ns !== null) {
      const at = x(one.window_ns);
      svg.append(drawn('line', { x1: at, x2: at, y1: top + 1, y2: top + high - 1, stroke: 'var(--text)', 'stroke-width': 2 }));
    }
    svg.append(drawn('text', { x: width - right + 6, y: middle + 4 }, time(one.last_ns)));
  });
}

function draw() {
  const some = Boolean(trial && seconds.length);
  show('chart-throughput', some);
  show('chart-response', some && seconds.some(second => second.requests));
  show('chart-stages', Boolean(trial && stages.length));
  show('no-seconds', Boolean(trial && !some && !over));
  if (some) { drawThroughput(); drawResponse(); }
  if (trial && stages.length) drawStages();
  drawLast();
}

function drawLast() {
  const last = seconds[seconds.length - 1], figures = [];
  if (trial && last) {
    figures.push(['second', number(last.second)], ['requests/s', number(last.requests)], ['p50', time(last.p50_ns)],
      ['mean', last.requests ? time(last.mean_ns) : '–'], ['p99', time(last.p99_ns)], ['errors', number(last.errors)]);
  }
  place('last').replaceChildren(...figures.map(([name, value]) => {
    const pair = made('div');
    pair.append(made('dt', name), made('dd', value));
    return pair;
  }));
}

// Tables.

function cell(row, text, name) { row.append(made('td', text, name)); }

function addFinished(trials) {
  for (const one of trials) {
    const row = made('tr'), result = made('td');
    cell(row, one.configuration);
    cell(row, one.block === null ? '' : String(one.block));
    result.append(made('span', one.passed ? 'passed' : 'FAILED', one.passed ? 'pass' : 'fail'));
    if (one.reasons) result.append(made('div', one.reasons, 'reasons'));
    row.append(result);
    cell(row, one.throughput_per_s === null ? '–' : number(one.throughput_per_s));
    cell(row, time(one.response_mean_ns));
    cell(row, time(one.response_p99_ns));
    place('rows').prepend(row);
    rows += 1;
    if (rows > ROWS_MAX) { place('rows').lastElementChild.remove(); rows -= 1; }
  }
  const last = trials[trials.length - 1];
  show('finished', true);
  show('gates', last.gates.length > 0);
  write('gates-title', `Gates of the last trial: ${last.configuration}, block ${last.block}`);
  place('gate-rows').replaceChildren(...last.gates.map(gate => {
    const row = made('tr');
    cell(row, gate.text);
    cell(row, gate.passed ? 'passed' : 'FAILED', gate.passed ? 'pass' : 'fail');
    cell(row, gate.value);
    cell(row, gate.limit);
    return row;
  }));
}

function showState(state) {
  const parts = [`${state.done} of ${state.total} trials`];
  if (state.passed || state.failed) parts.push(`${state.passed} passed, ${state.failed} failed their gates`);
  if (run.measured_before) parts.push(`${run.measured_before} measured before this start`);
  if (state.left_s !== null && !over) parts.push(`about ${duration(state.left_s)} left`);
  write('progress', parts.join(' · '));
  write('note', over ? '' : state.note);
  place('bar').value = state.total ? state.done / state.total : 0;
  document.title = `${state.done}/${state.total} ${run.name}`;
}

// Events.

const HEARD = {
  run(data) {
    run = data; trial = null; seconds = []; stages = []; rows = 0;
    place('rows').replaceChildren();
    show('finished', false); show('gates', false); show('connection', false);
    write('name', run.name); write('question', run.question); write('folder', run.folder);
    draw();
  },
  finished: addFinished,
  trial(data) {
    trial = data; seconds = []; stages = [];
    if (trial) write('running', `${trial.configuration}, block ${trial.block}`);
    draw();
  },
  state: showState,
  seconds(data) {
    seconds = seconds.concat(data).slice(-SECONDS_MAX);
    draw();
  },
  stages(data) { stages = data; draw(); },
  over(data) {
    over = data;
    source.close();
    write('over-text', over.text);
    write('note', '');
    place('over').className = over.report ? 'notice good' : 'notice bad';
    show('over', true); show('no-seconds', false);
    document.title = `${over.report ? 'Over' : 'Stopped'}: ${run.name}`;
    if (over.report) keepReport();
  },
};

// The server ends with the run, so the page keeps the report in its own memory.
async function keepReport() {
  write('report-path', `${run.folder}/report.html`);
  try {
    const answer = await fetch('/report.html');
    if (!answer.ok) return;
    place('report').href = URL.createObjectURL(new Blob([await answer.arrayBuffer()], { type: 'text/html;charset=utf-8' }));
    show('report', true);
  } catch { /* The path is shown. */ }
}

function lost() {
  const last = run ? `The run has ended or was stopped, or its machine cannot be reached. Its folder is ${run.folder}.` : 'The lab does not answer.';
  write('connection', `No connection. ${last} Trying again.`);
  show('connection', true);
}

function open() {
  if (over || source || document.hidden) return;
  source = new EventSource('/events');
  for (const [name, hear] of Object.entries(HEARD)) source.addEventListener(name, event => hear(JSON.parse(event.data)));
  source.onopen = () => show('connection', false);
  source.onerror = () => {
    lost();
    // A refused request is not repeated by the browser: too many pages are open.
    if (source && source.readyState === EventSource.CLOSED) { close(); setTimeout(open, RETRY_MS); }
  };
}

function close() {
  if (source) source.close();
  source = null;
}

// A browser opens six connections to a server. Hidden tabs give theirs up, so that a new tab can load.
document.addEventListener('visibilitychange', () => { if (document.hidden) close(); else open(); });
addEventListener('pagehide', close);
addEventListener('pageshow', open);
let resized = 0;
addEventListener('resize', () => { cancelAnimationFrame(resized); resized = requestAnimationFrame(draw); });
open();
