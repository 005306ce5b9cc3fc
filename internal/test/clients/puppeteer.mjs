// Puppeteer as a worker: node puppeteer.mjs URL ACTIONS [PACKAGE] (see actions.mjs).
// PACKAGE is puppeteer-core (25, the default), puppeteer-core-24, or a module beside this
// one: ./stealth.mjs, ./bidi.mjs. A ws: URL is that of the websocket; an http: URL is asked
// for it. Actions:
//   goto {url}  click {selector}  fill {selector, text}  evaluate {expression}
//   screenshot {path}  setCookie {cookie}  getCookies  url  pages  newPage  page {index}
//   newContext  cdp {method, params, on: "page"|"browser"}  events {method}
//   intercept {pattern, body}  download {selector, path}  upload {selector, paths}
//   close  disconnect
// The pattern of intercept is a part of the URL.
import { dirname } from 'node:path';
import { downloadedFile, printEvents, run, usage } from './actions.mjs';

const [url, actions, name = 'puppeteer-core'] = usage('puppeteer.mjs', 'URL ACTIONS [PACKAGE]', 2);
const { default: puppeteer } = await import(name);

await run(async () => {
  const endpoint = url.startsWith('ws') ? { browserWSEndpoint: url } : { browserURL: url };
  const browser = await puppeteer.connect({ ...endpoint, defaultViewport: null, protocolTimeout: 60000 });
  let context = browser.defaultBrowserContext();
  let page;
  const sessions = new Map();
  const here = async () => (page ??= (await context.pages())[0] ?? (await context.newPage()));
  const session = async (on) => {
    const target = on === 'browser' ? browser.target() : (await here()).target();
    if (!sessions.has(target)) sessions.set(target, await target.createCDPSession());
    return sessions.get(target);
  };
  return {
    goto: async ({ url }) => (await (await here()).goto(url))?.status() ?? null,
    click: async ({ selector }) => (await here()).click(selector),
    fill: async ({ selector, text }) => (await here()).locator(selector).fill(text),
    evaluate: async ({ expression }) => (await here()).evaluate(expression),
    screenshot: async ({ path }) => (await (await here()).screenshot({ path })).length,
    setCookie: async ({ cookie }) => context.setCookie(cookie),
    getCookies: async () => context.cookies(),
    url: async () => (await here()).url(),
    pages: async () => (await context.pages()).map((p) => p.url()),
    newPage: async () => { page = await context.newPage(); },
    page: async ({ index }) => { page = (await context.pages())[index]; },
    newContext: async () => { context = await browser.createBrowserContext(); page = await context.newPage(); },
    intercept: async ({ pattern, body }) => {
      await (await here()).setRequestInterception(true);
      page.on('request', (request) => (request.url().includes(pattern) ? request.respond({ body }) : request.continue()));
    },
    download: async ({ selector, path }) => {
      const browserSession = await session('browser');
      const to = (await here()).browserContext().id;
      await browserSession.send('Browser.setDownloadBehavior', {
        behavior: 'allow', downloadPath: dirname(path), eventsEnabled: true, ...(to && { browserContextId: to }),
      });
      const done = downloadedFile(browserSession);
      await page.locator(selector).click();
      return done;
    },
    upload: async ({ selector, paths }) => (await (await here()).$(selector)).uploadFile(...paths),
    events: async ({ method }) => printEvents(await session('page'), method),
    cdp: async ({ method, params, on = 'page' }) => (await session(on)).send(method, params),
    close: async () => browser.close(),
    disconnect: async () => browser.disconnect(),
  };
}, actions);
