// This runs in an isolated world of every document, which the page cannot see. It notes
// what was pressed, and what changed in the page afterwards. It changes nothing itself.
// The launcher asks by calling look.
(() => {
  if (globalThis.look) return;
  const maxPresses = 64, maxChanges = 200, maxText = 200, maxElements = 5000;
  const follows = 2000; // ms within which a request may follow from a press
  const again = 1000; // ms within which events on one control are one press
  const late = 5; // ms by which the two clocks may differ
  const near = 100; // ms after an answer within which the page may still show it
  const rounds = 5; // of tasks, after which the page has done what waited in it

  const presses = [], changes = [];
  let forgotten = 0; // when the last of the changes came that are not remembered any more
  // How often an element's content was replaced while nobody had pressed anything: what
  // goes on changing by itself is no sign of an answer.
  const restless = new WeakMap();

  const controls = 'a[href],area[href],button,input,select,textarea,summary,option,label,[role=button],[role=link],[role=switch],' +
    '[role=checkbox],[role=radio],[role=tab],[role=option],[role^=menuitem],[role=slider],[onclick],[tabindex],[contenteditable=""],[contenteditable=true]';
  const notices = '[role=status],[role=alert],[role=alertdialog],[role=log],[aria-live=polite],[aria-live=assertive],output';
  const noFields = ['button', 'submit', 'reset', 'image', 'checkbox', 'radio', 'range', 'color', 'file', 'hidden'];
  const fields = `textarea,[contenteditable=""],[contenteditable=true],input${noFields.map((t) => `:not([type=${t}])`).join('')}`;
  const choices = 'select,option,[role=tab],[role=option],[role=combobox]';
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
    presses.push({ at: now, until: now, control, name: nameOf(control), link: isLink(control), field: isField(control), choice: !!control?.matches(choices), state: stateOf(control), gone: false });
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
      if (changes.length > maxChanges) forgotten = changes.shift().at;
    }
  }

  const elements = () => Array.prototype.slice.call(document.getElementsByTagName('*'), 0, maxElements);
  const ownKinds = () => elements().filter((e) => e.localName.includes('-') || e.shadowRoot).length;

  // A busy host may not have let the page run since an answer came. So it is given a few turns
  // before it is looked at: a task of each comes after what waited before it.
  async function hasRun() {
    const { port1, port2 } = new MessageChannel();
    for (let i = 0; i < rounds; i++) await new Promise((next) => { port1.onmessage = next; port2.postMessage(0); });
    port1.close();
    if (document.visibilityState === 'visible') await new Promise((next) => { requestAnimationFrame(next); setTimeout(next, near); });
  }

  const pressOf = (sent) => presses.findLast((p) => p.at <= sent + late && sent <= p.until + follows);

  // has tells whether a value stands in a text. A number is no part of a longer one.
  function has(text, value) {
    const digit = (c) => c >= '0' && c <= '9';
    for (let i = text.indexOf(value); value && i >= 0; i = text.indexOf(value, i + 1)) {
      const end = i + value.length;
      if (!(i > 0 && digit(value[0]) && digit(text[i - 1])) && !(end < text.length && digit(value.at(-1)) && digit(text[end]))) return true;
    }
    return false;
  }

  // What was pressed before each request, by when it was sent.
  globalThis.pressedBefore = (sent) => sent.map(pressOf).map((p) => p ? { name: p.name, link: p.link, field: p.field } : null);

  // requests are those of scripts, as { sent, done, others, values }: when each was sent and
  // answered, when other answers came and were complete, and what texts its answer has.
  globalThis.look = async (requests) => {
    await hasRun();
    const kinds = ownKinds();
    const text = document.body?.textContent ?? '';
    const textOf = (list) => list.map((c) => c.text).join('\n').toLowerCase();
    return {
      // With a press, what is there to press is not asked.
      controls: document.querySelectorAll(`${controls},iframe,frame,object,embed,img,svg,canvas,video,audio,input:not([type=hidden])`).length + kinds,
      letters: text.length > 1e5 ? 1e5 : (document.body?.innerText ?? '').trim().length,
      opaque: kinds > 0 || !!document.querySelector('canvas,video,audio,object,embed'),
      found: requests.map(({ sent, done, others, values }) => {
        const p = pressOf(sent);
        if (!p) return null;
        const mayBring = ([head, end], at) => at >= head - late && (head > done || !end || at - Math.max(head, end) < near);
        const seen = changes.filter((c) => c.at >= done - late);
        const shared = seen.filter((c) => others.some((o) => mayBring(o, c.at))), alone = seen.filter((c) => !shared.includes(c));
        const words = values.map((v) => v.toLowerCase()), shown = textOf(alone), mixed = textOf(shared);
        return {
          name: p.name, link: p.link, field: p.field, choice: p.choice,
          own: p.gone || p.control?.isConnected === false || stateOf(p.control) !== p.state,
          elsewhere: alone.length > 0,
          shared: shared.length > 0,
          told: words.some((v) => has(shown, v)),
          perhaps: words.filter((v) => has(mixed, v)),
          missed: forgotten >= done - late,
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
