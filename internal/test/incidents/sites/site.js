// Helpers of the pages of all sites.
const send = (method, path, body, more) =>
  fetch(path, { method, headers: { 'Content-Type': 'application/json' }, body: body === undefined ? undefined : JSON.stringify(body), ...more });
const post = (path, body, more) => send('POST', path, body, more);
const at = (id) => document.getElementById(id);
const on = (id, what, event = 'click') => at(id)?.addEventListener(event, what);
const show = (text) => document.body.insertAdjacentHTML('beforeend', `<p>${text}</p>`);
const other = (host) => `${location.protocol}//${host}.localhost:${location.port}`;
// Every site counts its visitors when they leave.
const countVisits = () => addEventListener('pagehide', () => navigator.sendBeacon('/metrics/collect', JSON.stringify({ page: location.pathname })));
