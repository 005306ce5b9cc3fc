// Playwright as the worker of an incident: node playwright.mjs URL - (see common.mjs).
// It also has beside {method, url}.
import dns from 'node:dns';
import { createRequire } from 'node:module';
import { run, usage } from '../actions.mjs';
import { dialogs, shows, soon, until } from './common.mjs';

// Not imported: Node.js would parse the whole package twice, to find its names first.
const { chromium } = createRequire(import.meta.url)('playwright-core');

const [url, actions] = usage('playwright.mjs', 'URL ACTIONS', 2);

// Browsers resolve what is below localhost by themselves; Node.js asks the system, which
// may not know it.
const { lookup } = dns.promises;
dns.promises.lookup = (host, options) => lookup(host.endsWith('.localhost') ? '127.0.0.1' : host, options);

await run(async () => {
  const browser = await chromium.connectOverCDP(url, { timeout: 60000 });
  const own = browser.contexts()[0];
  const seen = dialogs();
  const sessions = new Map();
  let apart;
  const watched = (page) => {
    page.on('dialog', (d) => seen.opened(d.message(), () => d.accept()));
    return page;
  };
  own.on('page', watched);
  let page = await own.newPage();
  const session = async () => {
    if (!sessions.has(page)) sessions.set(page, await page.context().newCDPSession(page));
    return sessions.get(page);
  };
  const see = (text) => page.waitForFunction(shows(text), undefined, { timeout: 50000, polling: 50 });
  return {
    goto: async ({ url }) => { await page.goto(url); },
    open: async ({ url }) => soon(page.goto(url), 200),
    click: async ({ selector }) => soon(page.click(selector)),
    aside: async ({ selector }) => page.click(selector, { modifiers: ['Control'] }),
    fill: async ({ selector, text }) => page.fill(selector, text),
    type: async ({ text }) => page.keyboard.type(text),
    press: async ({ text }) => soon(page.keyboard.press(text)),
    attach: async ({ selector, path }) => page.setInputFiles(selector, path),
    run: async ({ expression }) => { await soon(page.evaluate(`void (${expression})`)); },
    scroll: async ({ text }) => until(text, async () => {
      await page.mouse.move(200, 200);
      await page.mouse.wheel(0, 900);
      return page.evaluate(shows(text));
    }).then(() => {}),
    see: async ({ text }) => { await see(text); },
    dialog: async ({ text }) => { await seen.wait(text); },
    accept: async ({ text }) => (await seen.wait(text)).accept(),
    switch: async ({ url }) => {
      page = await until(`a tab at ${url}`, () => page.context().pages().find((p) => p.url() === url));
    },
    close: async ({ url }) => {
      const old = page;
      page = await page.context().newPage();
      await page.goto(url);
      await old.close({ runBeforeUnload: false });
    },
    apart: async ({ url }) => {
      apart = await browser.newContext();
      apart.on('page', watched);
      page = await apart.newPage();
      await page.goto(url);
    },
    dispose: async ({ url }) => {
      await apart.close();
      page = await own.newPage();
      await page.goto(url);
    },
    beside: async ({ method, url }) => { await page.request.fetch(url, { method }); },
    cdp: async ({ method, params }) => (await session()).send(method, params),
  };
}, actions);
