// Uses every method of the client `memcached` with the servers of the command line, and prints what each call returns, one line for each.
// The lines for memcached and for the proxy must be the same. CAS tokens and addresses are not printed: each server has its own.
'use strict';

const crypto = require('crypto');
const Memcached = require('memcached');

const servers = process.argv[2].split(',');
// A call that takes longer than this has failed.
const TIMEOUT_MS = 20000;
// Names of statistics that monitoring programs read.
const STATISTICS = `pid uptime time version pointer_size rusage_user rusage_system curr_connections total_connections cmd_get cmd_set
  cmd_flush cmd_touch get_hits get_misses delete_hits delete_misses incr_hits incr_misses decr_hits decr_misses cas_hits cas_misses
  cas_badval touch_hits touch_misses bytes_read bytes_written limit_maxbytes threads bytes curr_items total_items evictions`.split(/\s+/);
const SETTINGS = 'maxbytes maxconns tcpport udpport inter verbosity num_threads item_size_max cas_enabled flush_enabled'.split(' ');

// The text of a result, the same for equal results. Long texts are replaced by their length and hash.
function describe(result) {
  if (result === undefined) return 'undefined';
  if (result instanceof Error) return `error: ${result.message}`;
  if (Buffer.isBuffer(result)) return `buffer ${short(result.toString('latin1'))}`;
  if (Array.isArray(result)) return `[${result.map(describe).join(', ')}]`;
  if (result !== null && typeof result === 'object') {
    const names = Object.keys(result).sort();
    return short(`{${names.map((name) => `${JSON.stringify(name)}: ${describeField(name, result[name])}`).join(', ')}}`);
  }
  return short(JSON.stringify(result));
}

function describeField(name, value) {
  if (name === 'cas') return /^\d+$/.test(value) && value !== '0' ? 'a token' : describe(value);
  return name === 'server' ? 'an address' : describe(value);
}

function short(text) {
  return text.length <= 400 ? text : `${text.length} characters ${crypto.createHash('sha256').update(text).digest('hex')}`;
}

// Calls a method, and prints its name, what it was called for, the error and the result. Returns the result.
function call(client, what, method, ...args) {
  return new Promise((resolve) => {
    const timer = setTimeout(() => finish('no reply within 20 s'), TIMEOUT_MS);
    function finish(error, result) {
      clearTimeout(timer);
      console.log(`${method} ${what}: ${error === undefined ? '' : `${describe(error)} | `}${describe(result)}`);
      resolve(result);
    }
    client[method](...args, finish);
  });
}

// The same without a line.
function quiet(client, method, ...args) {
  return new Promise((resolve, reject) => {
    client[method](...args, (error, result) => (error ? reject(error) : resolve(result)));
  });
}

async function storage(client) {
  await call(client, 'a text', 'set', 'a', 'one', 0);
  await call(client, 'a text', 'get', 'a');
  await call(client, 'an existing key', 'add', 'a', 'two', 0);
  await call(client, 'a new key', 'add', 'added', 'two', 0);
  await call(client, 'a missing key', 'replace', 'missing', 'three', 0);
  await call(client, 'an existing key', 'replace', 'added', 'three', 0);
  await call(client, 'a missing key', 'append', 'missing', 'x');
  await call(client, 'an existing key', 'append', 'a', '+');
  await call(client, 'a missing key', 'prepend', 'missing', 'x');
  await call(client, 'an existing key', 'prepend', 'a', '-');
  await call(client, 'after append and prepend', 'get', 'a');
  await call(client, 'after replace', 'get', 'added');
  await call(client, 'a missing key', 'get', 'missing');
  await call(client, 'a missing key', 'del', 'missing');
  await call(client, 'an existing key', 'del', 'added');
  await call(client, 'a deleted key', 'delete', 'added');
}

async function values(client) {
  const texts = ['', ' ', 'x', 'END', 'END\r\n', 'VALUE a 0 1', 'OK', 'STORED', '1\n2\r\n3\n\r4', '\\r\\n', 'привет', '世界😀'];
  const others = [0, -1, 1.5, 1e300, true, false, null, [1, [2]], { a: { b: 'c' } }, Buffer.from([0, 1, 2, 127])];
  for (const value of [...texts, ...others]) {
    await call(client, describe(value), 'set', 'value', value, 0);
    await call(client, describe(value), 'get', 'value');
  }
  for (const length of [1000, 2047, 2048, 16384, 65536, 500000, 1048000]) {
    await call(client, `${length} bytes`, 'set', 'large', 'v'.repeat(length), 0);
    await call(client, `${length} bytes`, 'get', 'large');
  }
  // The client refuses this one itself.
  await call(client, '2 MiB', 'set', 'large', 'v'.repeat(2 << 20), 0);
  await call(client, 'after a set of 2 MiB', 'get', 'large');
}

async function keys(client) {
  for (const key of ['k', 'k'.repeat(250), 'k'.repeat(251), '{tag}:1', '/a/b', 'noreply', '0', '-1', 'get', 'ключ', 'a b', 'a\nb']) {
    await call(client, `with the key ${describe(key)}`, 'set', key, 'v', 0);
    await call(client, `with the key ${describe(key)}`, 'get', key);
  }
}

async function manyKeys(client) {
  const names = Array.from({ length: 300 }, (_, index) => `many:${index}`);
  await Promise.all(names.filter((_, index) => index % 3).map((name) => quiet(client, 'set', name, name, 0)));
  for (const count of [1, 2, 127, 128, 129, 300]) {
    await call(client, `of ${count} keys`, 'getMulti', names.slice(0, count));
  }
  await call(client, 'of several keys', 'get', names.slice(0, 5));
  await call(client, 'of missing keys', 'getMulti', ['many:0', 'many:3']);
  await call(client, 'of one key twice', 'getMulti', ['many:1', 'many:1']);
  await call(client, 'of keys, one invalid', 'getMulti', ['many:1', 'many 2']);
}

async function compareAndSwap(client) {
  await call(client, 'before cas', 'set', 'cas', 'one', 0);
  const first = await call(client, 'before cas', 'gets', 'cas');
  const again = await quiet(client, 'gets', 'cas');
  console.log(`the token stays: ${first.cas === again.cas}`);
  await call(client, 'with a token', 'cas', 'cas', 'two', first.cas, 0);
  await call(client, 'with the old token', 'cas', 'cas', 'three', first.cas, 0);
  const changed = await call(client, 'after cas', 'gets', 'cas');
  console.log(`the token changes: ${first.cas !== changed.cas}`);
  await call(client, 'before cas', 'del', 'cas');
  await call(client, 'with a deleted key', 'cas', 'cas', 'four', changed.cas, 0);
  await call(client, 'a missing key', 'gets', 'missing');
}

async function counters(client) {
  await call(client, 'a missing key', 'incr', 'count', 1);
  await call(client, 'a missing key', 'decr', 'count', 1);
  await call(client, 'a number', 'set', 'count', 10, 0);
  await call(client, 'by 5', 'incr', 'count', 5);
  await call(client, 'by 5', 'increment', 'count', 5);
  await call(client, 'by 11', 'decr', 'count', 11);
  await call(client, 'a decremented counter', 'get', 'count');
  await call(client, 'below 0', 'decrement', 'count', 100);
  await call(client, 'by a negative number', 'incr', 'count', -1);
  await call(client, 'by a fraction', 'incr', 'count', 1.5);
  for (const value of ['', 'text', '12x', ' 1', '-1', '18446744073709551615', '18446744073709551616']) {
    await call(client, `the counter ${describe(value)}`, 'set', 'count', value, 0);
    await call(client, describe(value), 'incr', 'count', 1);
    await call(client, describe(value), 'decr', 'count', 1);
  }
}

async function expiration(client) {
  await call(client, 'for 2 s', 'set', 'soon', 'v', 2);
  await call(client, 'for 2 s', 'set', 'touched', 'v', 2);
  await call(client, 'until a date', 'set', 'date', 'v', Math.floor(Date.now() / 1000) + 1000);
  await call(client, 'until a date that has passed', 'set', 'past', 'v', 1600000000);
  await call(client, 'after a date', 'get', 'past');
  await call(client, 'for less than 0 s', 'set', 'negative', 'v', -1);
  await call(client, 'after less than 0 s', 'get', 'negative');
  await call(client, 'a missing key', 'touch', 'missing', 100);
  await call(client, 'an existing key', 'touch', 'touched', 100);
  await new Promise((resolve) => setTimeout(resolve, 3100));
  await call(client, 'after 2 s', 'get', 'soon');
  await call(client, 'after 2 s and a touch', 'get', 'touched');
  await call(client, 'before a date', 'get', 'date');
}

// Servers that answer with SERVER_ERROR are down for `retry` in the eyes of the client.
async function errorsOfServers() {
  const client = new Memcached(servers[0], { maxValue: 4 << 20, retry: 10, failures: 5 });
  const issues = [];
  client.on('issue', (details) => issues.push(details.messages.join(' ')));
  await call(client, 'before 2 MiB', 'set', 'large', 'old', 0);
  await call(client, '2 MiB, without a limit of the client', 'set', 'large', 'v'.repeat(2 << 20), 0);
  console.log(`issues: ${describe(issues)}`);
  await new Promise((resolve) => setTimeout(resolve, 100));
  await call(client, 'after 2 MiB, without a limit of the client', 'get', 'large');
  client.end();
}

async function namespaces() {
  const client = new Memcached(servers[0], { namespace: 'space:' });
  await call(client, 'in a namespace', 'set', 'a', 'of the namespace', 0);
  await call(client, 'in a namespace', 'get', 'a');
  await call(client, 'in a namespace', 'getMulti', ['a', 'b']);
  await call(client, 'in a namespace', 'del', 'a');
  client.end();
}

// The client divides the keys among the servers. Its option `redundancy` is not used: it calls a method that its hash ring does not have.
async function severalServers() {
  const client = new Memcached(servers);
  const names = Array.from({ length: 30 }, (_, index) => `several:${index}`);
  await Promise.all(names.map((name, index) => quiet(client, 'set', name, index, 0)));
  await call(client, 'of several servers', 'getMulti', names);
  await call(client, 'of several servers', 'version');
  await call(client, 'of several servers', 'flush');
  await call(client, 'after a flush of several servers', 'getMulti', names);
  client.end();
}

async function concurrently(client) {
  await call(client, 'a counter of all', 'set', 'shared', 0, 0);
  const wrong = [];
  async function work(worker) {
    for (let round = 0; round < 50; round++) {
      const [key, value] = [`worker:${worker}:${round % 5}`, String(worker).repeat(round * 20)];
      await quiet(client, 'set', key, value, 0);
      const found = await quiet(client, 'get', key);
      if (found !== value) wrong.push(key);
      await quiet(client, 'incr', 'shared', 1);
    }
  }
  await Promise.all(Array.from({ length: 20 }, (_, worker) => work(worker)));
  console.log(`wrong values of 20 workers: ${describe(wrong)}`);
  await call(client, 'a counter of all', 'get', 'shared');
}

async function ofTheServer(client) {
  await call(client, 'of the server', 'version');
  const [statistics] = await quiet(client, 'stats');
  console.log(`stats, names: ${STATISTICS.filter((name) => !(name in statistics)).join(' ') || 'all'}`);
  const [settings] = await quiet(client, 'settings');
  console.log(`settings, names: ${SETTINGS.filter((name) => !(name in settings)).join(' ') || 'all'}`);
  console.log(`statsSettings, names: ${'maxbytes' in (await quiet(client, 'statsSettings'))[0]}`);
  const slabs = await quiet(client, 'slabs');
  console.log(`slabs, of items: ${Object.keys(slabs[0]).some((name) => /^\d+$/.test(name))}`);
  console.log(`statsSlabs: ${'active_slabs' in (await quiet(client, 'statsSlabs'))[0]}`);
  const items = await quiet(client, 'items');
  console.log(`items, of items: ${Object.keys(items[0] || {}).some((name) => /^\d+$/.test(name))}`);
  console.log(`statsItems, of items: ${Object.keys((await quiet(client, 'statsItems'))[0] || {}).some((name) => /^\d+$/.test(name))}`);
  const dumped = await quiet(client, 'cachedump', servers[0], 1, 10);
  console.log(`cachedump, items: ${dumped !== undefined}`);
}

async function main() {
  const methods = Object.keys(Memcached.prototype).filter((name) => typeof Memcached.prototype[name] === 'function');
  console.log(`methods: ${methods.sort().join(' ')}`);
  const client = new Memcached(servers[0]);
  const parts = [storage, values, keys, manyKeys, compareAndSwap, counters, expiration, concurrently, ofTheServer];
  await call(client, 'at the beginning', 'flush');
  for (const part of parts) {
    await part(client);
  }
  await errorsOfServers();
  await namespaces();
  await severalServers();
  await call(client, 'at the end', 'flushAll');
  await call(client, 'after flushAll', 'get', 'shared');
  client.end();
  // The client keeps timers for servers that had issues.
  process.exit(0);
}

main();
