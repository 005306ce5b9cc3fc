// A snippet for pages, with an EventSource in "events": it is to get the event of a session's
// beginning. Pages of the sidecar's own browsers do not reach it, so this one is in another.
import { chromium } from 'playwright-core';
const session = await chromium.connectOverCDP(
  'http://127.0.0.1:9333/profiles/shop_018?worker=worker-7&task=task_101&create=true&wait=10s');
const browser = await chromium.launch({ executablePath: process.env.CHROME, chromiumSandbox: process.getuid() !== 0 });
const page = await browser.newPage();
page.on('console', (m) => console.log(m.text()));
await page.goto('http://127.0.0.1:9333/openapi.json');
await page.evaluate(() => new Promise((resolve, reject) => {
  setTimeout(reject, 60000, new Error('no event'));
// the snippet
  events.addEventListener('message', () => setTimeout(resolve, 100));
}));
await browser.close();
await session.close();
