// Puppeteer as the worker of an incident: node puppeteer.mjs URL - (see common.mjs).
import puppeteer from 'puppeteer-core';
import { run, usage } from '../actions.mjs';
import { dialogs, shows, soon, until } from './common.mjs';

const [url, actions] = usage('puppeteer.mjs', 'URL ACTIONS', 2);

// hit tells whether a click on an element hits it, and not what lies over it.
const hit = (selector) => {
  const e = document.querySelector(selector);
  if (!e) return false;
  e.scrollIntoView({ block: 'center' });
  const r = e.getBoundingClientRect();
  return e.contains(document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2));
};

await run(async () => {
  const browser = await puppeteer.connect({ browserWSEndpoint: url, defaultViewport: null, protocolTimeout: 60000 });
  const seen = dialogs();
  const sessions = new Map();
  const known = new Set();
  let apart;
  const watched = (page) => {
    if (!known.has(page)) page.on('dialog', (d) => seen.opened(d.message(), () => d.accept()));
    known.add(page);
    return page;
  };
  let page = watched(await browser.defaultBrowserContext().newPage());
  const session = async () => {
    if (!sessions.has(page)) sessions.set(page, await page.createCDPSession());
    return sessions.get(page);
  };
  return {
    goto: async ({ url }) => { await page.goto(url); },
    open: async ({ url }) => soon(page.goto(url), 200),
    click: async ({ selector, patient }) => {
      await page.waitForSelector(selector);
      if (patient) await page.waitForFunction(hit, { timeout: 50000, polling: 50 }, selector);
      await soon(page.click(selector));
    },
    aside: async ({ selector }) => {
      await page.keyboard.down('Control');
      await page.click(selector);
      await page.keyboard.up('Control');
    },
    fill: async ({ selector, text }) => {
      await page.waitForSelector(selector);
      await page.type(selector, text);
    },
    type: async ({ text }) => page.keyboard.type(text),
    press: async ({ text }) => soon(page.keyboard.press(text)),
    attach: async ({ selector, path }) => (await page.$(selector)).uploadFile(path),
    run: async ({ expression }) => { await soon(page.evaluate(`void (${expression})`)); },
    scroll: async ({ text }) => until(text, async () => {
      await page.mouse.move(200, 200);
      await page.mouse.wheel({ deltaY: 900 });
      return page.evaluate(shows(text));
    }).then(() => {}),
    see: async ({ text }) => { await page.waitForFunction(shows(text), { timeout: 50000, polling: 50 }); },
    dialog: async ({ text }) => { await seen.wait(text); },
    accept: async ({ text }) => (await seen.wait(text)).accept(),
    switch: async ({ url }) => {
      page = watched(await until(`a tab at ${url}`, async () => (await browser.pages()).find((p) => p.url() === url)));
    },
    close: async ({ url }) => {
      const old = page;
      page = watched(await page.browserContext().newPage());
      await page.goto(url);
      await old.close();
    },
    apart: async ({ url }) => {
      apart = await browser.createBrowserContext();
      page = watched(await apart.newPage());
      await page.goto(url);
    },
    dispose: async ({ url }) => {
      await apart.close();
      page = watched(await browser.defaultBrowserContext().newPage());
      await page.goto(url);
    },
    cdp: async ({ method, params }) => (await session()).send(method, params),
  };
}, actions);
