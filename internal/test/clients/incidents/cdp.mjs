// chrome-remote-interface as the worker of an incident: node cdp.mjs HOST:PORT - (see
// common.mjs). It knows only what it enabled itself, as small programs of this kind do.
import CDP from 'chrome-remote-interface';
import { run, usage } from '../actions.mjs';
import { dialogs, shows, soon, until } from './common.mjs';

const [address, actions] = usage('cdp.mjs', 'HOST:PORT ACTIONS', 2);
const colon = address.lastIndexOf(':');
const endpoint = { host: address.slice(0, colon), port: Number(address.slice(colon + 1)) };
const keys = { Enter: [13, '\r'], Tab: [9, ''], Escape: [27, ''] };

await run(async () => {
  const seen = dialogs();
  const attached = new Map();
  let target;
  let client;
  let browser;
  let contextId;
  // to goes on in a tab.
  const to = async (id) => {
    if (!attached.has(id)) {
      const one = await CDP({ ...endpoint, target: id });
      await one.Page.enable();
      one.Page.javascriptDialogOpening(({ message }) => seen.opened(message, () => one.Page.handleJavaScriptDialog({ accept: true })));
      attached.set(id, one);
    }
    target = id;
    client = attached.get(id);
  };
  const evaluate = async (expression) => {
    const { result, exceptionDetails } = await client.Runtime.evaluate({ expression, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  };
  const go = async (url) => {
    const loaded = new Promise((resolve) => client.once('Page.loadEventFired', resolve));
    const { errorText } = await client.Page.navigate({ url });
    if (errorText) throw new Error(errorText);
    await loaded;
  };
  const click = async (selector, modifiers = 0) => {
    const [x, y] = await until(selector, () => evaluate(`(() => { const e = document.querySelector(${JSON.stringify(selector)});
      if (!e) return null; e.scrollIntoView({ block: 'center' }); const r = e.getBoundingClientRect();
      return [r.x + r.width / 2, r.y + r.height / 2]; })()`));
    for (const type of ['mousePressed', 'mouseReleased']) {
      await soon(client.Input.dispatchMouseEvent({ type, x, y, button: 'left', clickCount: 1, modifiers }));
    }
  };
  const press = async (key) => {
    const [code, text] = keys[key] ?? [key.toUpperCase().charCodeAt(0), key];
    await soon(client.Input.dispatchKeyEvent({ type: 'keyDown', key, text, windowsVirtualKeyCode: code }));
    await soon(client.Input.dispatchKeyEvent({ type: 'keyUp', key, windowsVirtualKeyCode: code }));
  };
  const tab = async (browserContextId) => {
    const asks = browserContextId ? browser : client;
    const { targetId } = await asks.Target.createTarget({ url: 'about:blank', browserContextId });
    await to(targetId);
  };
  await to((await CDP.List(endpoint)).find((t) => t.type === 'page').id);
  return {
    goto: async ({ url }) => go(url),
    open: async ({ url }) => soon(client.Page.navigate({ url }), 200),
    click: async ({ selector }) => click(selector),
    aside: async ({ selector }) => click(selector, 2),
    fill: async ({ selector, text }) => {
      await click(selector);
      await client.Input.insertText({ text });
    },
    type: async ({ text }) => { for (const letter of text) await press(letter); },
    press: async ({ text }) => press(text),
    attach: async ({ selector, path }) => {
      const { root } = await client.DOM.getDocument();
      const { nodeId } = await client.DOM.querySelector({ nodeId: root.nodeId, selector });
      await client.DOM.setFileInputFiles({ nodeId, files: [path] });
    },
    run: async ({ expression }) => soon(evaluate(`void (${expression})`)),
    scroll: async ({ text }) => until(text, async () => {
      await client.Input.dispatchMouseEvent({ type: 'mouseWheel', x: 200, y: 200, deltaX: 0, deltaY: 900 });
      return evaluate(shows(text));
    }).then(() => {}),
    see: async ({ text }) => { await until(text, () => evaluate(shows(text))); },
    dialog: async ({ text }) => { await seen.wait(text); },
    accept: async ({ text }) => (await seen.wait(text)).accept(),
    switch: async ({ url }) => to((await until(`a tab at ${url}`, async () => (await CDP.List(endpoint)).find((t) => t.type === 'page' && t.url === url))).id),
    close: async ({ url }) => {
      const old = target;
      await tab();
      await go(url);
      await client.Target.closeTarget({ targetId: old });
    },
    apart: async ({ url }) => {
      // Chrome creates contexts only on the browser's own socket.
      const { webSocketDebuggerUrl } = await CDP.Version(endpoint);
      browser = await CDP({ target: webSocketDebuggerUrl, local: true });
      ({ browserContextId: contextId } = await browser.Target.createBrowserContext());
      await tab(contextId);
      await go(url);
    },
    dispose: async ({ url }) => {
      await browser.Target.disposeBrowserContext({ browserContextId: contextId });
      await to((await CDP.List(endpoint)).find((t) => t.type === 'page').id);
      await tab();
      await go(url);
    },
    cdp: async ({ method, params }) => client.send(method, params),
  };
}, actions);
