// Pieces of the page come from the server, as attributes say: hx-get, hx-post, hx-trigger, hx-target.
document.addEventListener('DOMContentLoaded', () => {
  for (const e of document.querySelectorAll('[hx-get], [hx-post]')) {
    let wait;
    const go = async () => {
      const method = e.hasAttribute('hx-post') ? 'POST' : 'GET';
      const body = method === 'POST' && e.name ? new URLSearchParams({ [e.name]: e.value }) : undefined;
      const answer = await fetch(e.getAttribute('hx-get') ?? e.getAttribute('hx-post'), { method, body, headers: { 'HX-Request': 'true' } });
      const target = e.getAttribute('hx-target');
      (target ? document.querySelector(target) : e).innerHTML = await answer.text();
    };
    e.addEventListener(e.getAttribute('hx-trigger') ?? 'click', (event) => { if (event.type === 'click') event.preventDefault(); clearTimeout(wait); wait = setTimeout(go, e.name ? 250 : 0); });
  }
});
