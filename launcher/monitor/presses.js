// This runs in an isolated world of every document, which the page cannot see. It notes
// what was pressed, and what changed in the page afterwards. It changes nothing itself.
// The launcher asks by calling look.
(() => {
  if (globalThis.look) return;
  const maxPresses = 16, maxChanges = 200, maxText = 200, maxElements = 5000;
  const follows = 2000; // ms within which a request may follow from a press
  const again = 1000; // ms within which events on one control are one press
  const late = 5; // ms by which the two clocks may differ
  const near = 30; // ms within which two answers cannot be told apart

  const presses = [], changes = [];
  // How often an element's content was replaced while nobody had pressed anything: what
  // goes on changing by itself is no sign of an answer.
  const restless = new WeakMap();

  const controls = 'a[href],area[href],button,input,select,textarea,summary,option,label,[role=button],[role=link],[role=switch],' +
    '[role=checkbox],[role=radio],[role=tab],[role=option],[role^=menuitem],[role=slider],[onclick],[tabindex],[contenteditable=""],[contenteditable=true]';
  const notices = '[role=status],[role=alert],[role=alertdialog],[role=log],[aria-live=polite],[aria-live=assertive],output';
  const noFields = ['button', 'submit', 'reset', 'image', 'checkbox', 'radio', 'range', 'color', 'file', 'hidden'];
  const fields = `textarea,[contenteditable=""],[contenteditable=true],input${noFields.map((t) => `:not([type=${t}])`).join('')}`;
  const watched = ['hidden', 'open', 'src', 'srcset', 'aria-expanded', 'aria-hidden', 'aria-sort', 'value'];
  const silent = ['script', 'style', 'link', 'meta', 'template', 'noscript'];

  const isElement = (n) => n?.nodeType === Node.ELEMENT_NODE;
  const whole = (c) => !c || c === document.body || c === document.documentElement;

  function controlOf(event) {
    const path = event.composedPath().filter(isElement);
    const found = path.find((n) => n.matches(controls)) ?? path[0];
    const control = found?.localName === 'label' ? found.control ?? found : found;
    return whole(control) ? null : control;
  }

  function stateOf(c) {
    if (!c) return '';
    const seen = ['aria-pressed', 'aria-checked', 'aria-selected', 'class', 'src'].map((a) => c.getAttribute(a));
    return JSON.stringify([c.textContent.slice(0, maxText), c.checked, c.localName === 'select' || noFields.includes(c.type) ? c.value : null, seen]);
  }

  function isLink(c) {
    const a = c?.closest('a[href],area[href]');
    return !!a && !a.matches('[role]:not([role=link])') && /^(https?|file):/.test(a.href) && a.href.split('#')[0] !== location.href.split('#')[0];
  }

  function isField(c) {
    if (!c) return false;
    const form = c.form ?? c.closest('form');
    return c.matches(fields) || !!c.closest('[role=search],search') || !!form?.querySelector(fields);
  }

  function nameOf(c) {
    if (!c) return '';
    const own = noFields.includes(c.type) && c.localName === 'input' ? c.value : c.matches(fields) || c.querySelector(fields) ? '' : c.textContent;
    const name = (c.getAttribute('aria-label') || own || c.getAttribute('title') || '').trim().replace(/\s+/g, ' ').slice(0, 40);
    return `${c.getAttribute('role') || c.localName} ${JSON.stringify(name)}`;
  }

  function pressed(event) {
    const now = Date.now(), control = controlOf(event), last = presses[presses.length - 1];
    if (last && last.control === control && now - last.until < again) {
      last.until = now;
      return;
    }
    presses.push({ at: now, until: now, control, name: nameOf(control), link: isLink(control), field: isField(control), state: stateOf(control), gone: false });
    if (presses.length > maxPresses) presses.shift();
  }

  function changed(records) {
    const now = Date.now();
    const press = presses.findLast((p) => now - p.at < 2 * follows);
    for (const r of records) {
      const node = isElement(r.target) ? r.target : r.target.parentElement;
      if (!node || silent.includes(node.localName)) continue;
      const added = [...r.addedNodes].filter((n) => !silent.includes(n.localName)), removed = [...r.removedNodes];
      if (r.type === 'childList' && !added.length && !removed.some((n) => !silent.includes(n.localName))) continue;
      const replaces = r.type === 'characterData' || r.type === 'childList' && removed.length > 0;
      if (!press) {
        if (replaces) restless.set(node, (restless.get(node) ?? 0) + 1);
        continue;
      }
      const c = press.control;
      if (c && r.type === 'childList' && !added.length && removed.some((n) => n.contains(c))) {
        press.gone = true;
        continue;
      }
      if (c?.contains(node) || node.closest(notices) || (restless.get(node) ?? 0) > 1) continue;
      if (added.length && added.every((n) => isElement(n) && n.matches(notices))) continue;
      const text = r.type === 'attributes' ? node.getAttribute(r.attributeName) ?? '' : r.type === 'characterData' ? r.target.data : added.map((n) => n.textContent).join(' ');
      changes.push({ at: now, text: text.slice(0, maxText) });
      if (changes.length > maxChanges) changes.shift();
    }
  }

  const elements = () => Array.prototype.slice.call(document.getElementsByTagName('*'), 0, maxElements);
  const ownKinds = () => elements().filter((e) => e.localName.includes('-') || e.shadowRoot).length;

  // requests are those of scripts, as { sent, done, next, values }: when each was sent and
  // answered, when the next answer to another one came, and what texts its answer has.
  globalThis.look = (requests) => {
    const kinds = ownKinds();
    const text = document.body?.textContent ?? '';
    return {
      // With a press, what is there to press is not asked.
      controls: document.querySelectorAll(`${controls},iframe,frame,object,embed,img,svg,canvas,video,audio,input:not([type=hidden])`).length + kinds,
      letters: text.length > 1e5 ? 1e5 : (document.body?.innerText ?? '').trim().length,
      opaque: kinds > 0 || !!document.querySelector('canvas,video,audio,object,embed'),
      found: requests.map(({ sent, done, next, values }) => {
        const p = presses.findLast((p) => p.at <= sent + late && sent <= p.until + follows);
        if (!p) return null;
        const until = !next ? Infinity : next - done < near ? next + near : next;
        const seen = changes.filter((c) => c.at >= done - late && c.at < until);
        const shown = seen.map((c) => c.text).join('\n').toLowerCase();
        return {
          name: p.name, link: p.link, field: p.field,
          own: p.gone || p.control?.isConnected === false || stateOf(p.control) !== p.state,
          elsewhere: seen.length > 0,
          told: values.some((v) => v && shown.includes(v.toLowerCase())),
        };
      }),
    };
  };

  for (const type of ['pointerdown', 'mousedown', 'click', 'auxclick', 'change', 'submit']) addEventListener(type, pressed, { capture: true, passive: true });
  addEventListener('keydown', (e) => { if (!['Shift', 'Control', 'Alt', 'Meta', 'Tab', 'CapsLock'].includes(e.key)) pressed(e); }, { capture: true, passive: true });
  const watch = () => new MutationObserver(changed).observe(document, { subtree: true, childList: true, characterData: true, attributeFilter: watched });
  if (document.readyState === 'loading') addEventListener('DOMContentLoaded', watch, { capture: true, once: true });
  else watch();
})();
