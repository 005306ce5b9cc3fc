// A snippet in the middle of a task with Playwright: "browser" and "page" are there.
import { chromium } from 'playwright-core';
const browser = await chromium.connectOverCDP(
  'http://127.0.0.1:9333/profiles/shop_018?worker=worker-7&task=task_101&create=true&wait=10s&resumable=true');
const page = browser.contexts()[0].pages()[0];
const pages = 3;
async function readPage(at) { await page.goto(`data:text/html,<h1>${at}</h1>`); }
// the snippet
await browser.close();
