// Playwright as a worker: node playwright.mjs URL ACTIONS [HEADERS] [PACKAGE]
// (see actions.mjs; HEADERS is a JSON object; PACKAGE is playwright-core, the default, or
// patchright-core). Actions:
//   goto {url}  click {selector}  fill {selector, text}  evaluate {expression}
//   screenshot {path}  setCookie {cookie}  getCookies  url  pages  newPage  page {index}
//   newContext  cdp {method, params, on: "page"|"browser"}  events {method}
//   intercept {pattern, body}  download {selector, path}  upload {selector, paths}
//   uploadText {selector, name, text}  close  disconnect
import { createRequire } from 'node:module';
import { printEvents, run, usage } from './actions.mjs';

const [url, actions, headers = '{}', name = 'playwright-core'] = usage('playwright.mjs', 'URL ACTIONS [HEADERS] [PACKAGE]', 2);
// Not imported: Node.js would parse the whole package twice, to find its names first.
const { chromium } = createRequire(import.meta.url)(name);

await run(async () => {
  const browser = await chromium.connectOverCDP(url, { headers: JSON.parse(headers), timeout: 60000 });
  let context = browser.contexts()[0];
  let page;
  const sessions = new Map();
  const here = async () => (page ??= context.pages()[0] ?? (await context.newPage()));
  const session = async (on) => {
    if (on === 'browser') {
      if (!sessions.has(on)) sessions.set(on, await browser.newBrowserCDPSession());
      return sessions.get(on);
    }
    const target = await here();
    if (!sessions.has(target)) sessions.set(target, await target.context().newCDPSession(target));
    return sessions.get(target);
  };
  return {
    goto: async ({ url }) => (await (await here()).goto(url))?.status() ?? null,
    click: async ({ selector }) => (await here()).click(selector),
    fill: async ({ selector, text }) => (await here()).fill(selector, text),
    evaluate: async ({ expression }) => (await here()).evaluate(expression),
    screenshot: async ({ path }) => (await (await here()).screenshot({ path })).length,
    setCookie: async ({ cookie }) => context.addCookies([cookie]),
    getCookies: async () => context.cookies(),
    url: async () => (await here()).url(),
    pages: async () => context.pages().map((p) => p.url()),
    newPage: async () => { page = await context.newPage(); },
    page: async ({ index }) => { page = context.pages()[index]; },
    newContext: async () => { context = await browser.newContext(); page = await context.newPage(); },
    intercept: async ({ pattern, body }) => context.route(pattern, (route) => route.fulfill({ body })),
    download: async ({ selector, path }) => {
      const [download] = await Promise.all([(await here()).waitForEvent('download'), (await here()).click(selector)]);
      await download.saveAs(path);
      return download.suggestedFilename();
    },
    upload: async ({ selector, paths }) => (await here()).setInputFiles(selector, paths),
    uploadText: async ({ selector, name, text }) => (await here()).setInputFiles(selector, { name, mimeType: 'text/plain', buffer: Buffer.from(text) }),
    events: async ({ method }) => printEvents(await session('page'), method),
    cdp: async ({ method, params, on = 'page' }) => (await session(on)).send(method, params),
    // Playwright's close only closes the websocket of a browser that it did not start.
    // This action closes the browser itself, as a user would have to do it.
    close: async () => { await (await session('browser')).send('Browser.close'); },
    disconnect: async () => browser.close(),
  };
}, actions);
