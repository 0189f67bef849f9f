'use strict';
// Shows one cell of the grid and the curves through it. Nothing is computed but positions on the page.
const { factors, cells, fixed } = JSON.parse(document.getElementById('grid').textContent);
const place = factors.map(factor => factor.start);
let along = Math.max(0, factors.findIndex(factor => factor.name === 'clients'));
const $ = name => document.getElementById(name);
const cell = at => cells[at.reduce((sum, value, i) => sum * factors[i].levels.length + value, 0)];
const escaped = text => String(text).replace(/[&<>"]/g, c => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]);
const short = value => value >= 100 ? Math.round(value).toLocaleString('en') : String(+value.toPrecision(3));
const rate = value => short(value) + '/s';
const seconds = value => {
  const [factor, unit] = value >= 1 ? [1, 's'] : value >= 1e-3 ? [1e3, 'ms'] : [1e6, 'µs'];
  return short(value * factor) + ' ' + unit;
};

function sliders() {
  factors.forEach((factor, i) => {
    const label = document.createElement('label');
    label.innerHTML = `<span>${escaped(factor.name)} <span class="tag">${escaped(factor.unit)}</span></span><output></output>` +
      `<input type="range" min="0" max="${factor.levels.length - 1}" step="1" value="${factor.start}">`;
    const input = label.querySelector('input');
    input.addEventListener('input', () => { place[i] = +input.value; along = i; show(); });
    input.addEventListener('focus', () => { if (along !== i) { along = i; show(); } });
    $('sliders').append(label);
  });
}

function show() {
  factors.forEach((factor, i) => {
    const value = factor.levels[place[i]];
    const text = factor.measured.includes(value) ? '' : isBeyond(factor, value) ? ' (beyond)' : ' (between)';
    const label = $('sliders').children[i];
    label.querySelector('output').innerHTML = escaped(short(value)) + `<span class="tag">${text}</span>`;
    label.querySelector('input').setAttribute('aria-valuetext', short(value) + text);
  });
  const now = cell(place);
  const state = $('state');
  if (now.no) {
    $('answer-now').innerHTML = '<span>prediction</span><b>refused</b>';
    state.textContent = 'Not predicted: ' + now.no;
    state.className = 'no';
  } else {
    const rows = [['throughput', rate(now.x[0]), now.x, rate], ['mean response', seconds(now.r[0]), now.r, seconds]];
    $('answer-now').innerHTML = rows.map(([name, text, all, unit]) => `<span>${name}</span><span><b>${text}</b> ` +
      (all[1] === null ? '' : `<span class="interval">90 %: ${unit(all[1])} to ${unit(all[2])}</span>`) + '</span>').join('') +
      Object.entries(now.p).map(([share, value]) => `<span>p${escaped(share)}</span><span>${seconds(value)}</span>`).join('') +
      `<span>bottleneck</span><span>${escaped(now.b || 'unknown')}</span>` +
      (now.mx ? `<span>measured</span><span>${now.mx.map(rate).join(', ')}</span>` : '');
    state.textContent = now.e ? 'Extrapolation: ' + now.e.join('; ') + '.' : 'Within the measured levels.';
    state.className = now.e ? 'beyond' : '';
  }
  $('busy').innerHTML = now.no ? '' : Object.entries(now.u).map(([name, share]) =>
    `<div class="bar${name === now.b ? ' most' : ''}"><span>${escaped(name)}</span><i><b style="width:${Math.min(100, 100 * share)}%"></b></i>` +
    `<span>${Math.round(100 * share)} %</span></div>`).join('');
  draw('x', 'Throughput', rate);
  draw('r', 'Mean response time', seconds);
}

const isBeyond = (factor, value) => value > Math.max(...factor.measured) || value < Math.min(...factor.measured);

// A round step of which about four fit into the range.
function step(high) {
  const size = 10 ** Math.floor(Math.log10(high / 4));
  return [1, 2, 5, 10].find(part => high / (part * size) <= 5) * size;
}

function draw(key, title, unit) {
  const factor = factors[along], width = 480, height = 260, left = 62, right = 12, top = 10, bottom = 38;
  const points = factor.levels.map((value, i) => [value, cell(place.map((at, j) => j === along ? i : at)), i]);
  const known = points.filter(([, one]) => !one.no);
  $('title-' + key).textContent = `${title} by ${factor.name}`;
  if (!known.length) { $('chart-' + key).innerHTML = '<p class="soft">No prediction for any level.</p>'; return; }
  const dots = points.flatMap(([value, one]) => (one['m' + key] || []).map(found => [value, found]));
  // A single wide interval must not flatten the curve: the axis ends at three times the largest value.
  const largest = Math.max(...known.map(([, one]) => one[key][0]), ...dots.map(dot => dot[1]));
  const high = Math.min(3 * largest, Math.max(largest, ...known.map(([, one]) => one[key][2] ?? 0)));
  const low = factor.levels[0], last = factor.levels.at(-1);
  const logarithmic = low > 0 && last / low > 8;
  const on = value => logarithmic ? Math.log(value / low) / Math.log(last / low) : (value - low) / (last - low || 1);
  const x = value => left + (width - left - right) * on(value);
  const y = value => top + (height - top - bottom) * (1 - Math.min(value, high) / high);
  const path = list => list.map(([a, b], i) => `${i ? 'L' : 'M'}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join('');
  let drawn = '';
  for (let value = 0; value <= high; value += step(high)) {
    drawn += `<path class="tick" d="M${left} ${y(value)}H${width - right}"/><text x="${left - 6}" y="${y(value) + 4}" text-anchor="end">${unit(value || 0).replace(/^0 .*|^0\/s/, '0')}</text>`;
  }
  let written = -1e9;
  factor.levels.forEach(value => {
    if (x(value) - written > 34) { written = x(value); drawn += `<text x="${written}" y="${height - 20}" text-anchor="middle">${short(value)}</text>`; }
  });
  drawn += `<text x="${(left + width) / 2}" y="${height - 4}" text-anchor="middle">${escaped(factor.name)}</text>`;
  // One band and one line for each stretch without a refused cell.
  const stretches = [[]];
  points.forEach(point => { if (point[1].no) stretches.push([]); else stretches.at(-1).push(point); });
  for (const stretch of stretches.filter(one => one.length)) {
    if (stretch.every(([, one]) => one[key][1] !== null)) {
      const up = stretch.map(([value, one]) => [value, one[key][2]]), down = stretch.map(([value, one]) => [value, one[key][1]]);
      drawn += `<path class="band" d="${path(up)}${path(down.reverse()).replace('M', 'L')}Z"/>`;
    }
    for (let i = 1; i < stretch.length; i++) {
      const pair = [stretch[i - 1], stretch[i]];
      const far = pair.some(([, one]) => one.e) ? ' beyond' : '';
      drawn += `<path class="line${far}" d="${path(pair.map(([value, one]) => [value, one[key][0]]))}"/>`;
    }
    if (stretch.length === 1) drawn += `<circle class="line" cx="${x(stretch[0][0])}" cy="${y(stretch[0][1][key][0])}" r="2"/>`;
  }
  dots.forEach(([value, found]) => { drawn += `<circle class="dot" cx="${x(value).toFixed(1)}" cy="${y(found).toFixed(1)}" r="4"/>`; });
  drawn += `<path class="here" d="M${x(factor.levels[place[along]])} ${top}V${height - bottom}"/>`;
  $('chart-' + key).innerHTML = `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${escaped(title)} by ${escaped(factor.name)}">${drawn}</svg>`;
}

sliders();
$('fixed').textContent = 'Other settings: ' + Object.entries(fixed).map(([name, value]) => `${name} ${short(value)}`).join(', ') +
  '. Percentiles have no interval. The page needs no network.';
show();
