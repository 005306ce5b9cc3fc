// A task of three pages that can be resumed. The first time it is killed behind the second
// page; started again, it goes on with the third: node resume.mjs; node resume.mjs
import { chromium } from 'playwright-core';

const sidecar = process.env.LEASEHOLD_URL ?? 'http://127.0.0.1:9333';
const shop = `http://127.0.0.1:${process.env.PORT ?? 8080}/`;

const browser = await chromium.connectOverCDP(
  `${sidecar}/profiles/shop_019?worker=worker-7&task=task_104&create=true&wait=60s&resumable=true`);
const context = browser.contexts()[0];
const page = context.pages()[0];
const lease = await context.newCDPSession(page);

const { resume } = await lease.send('Lease.getLease'); // {from, checkpoint, data}, or null
const first = resume ? resume.data.next : 1;
for (let at = first; at <= 3; at++) {
  await page.goto(`${shop}list?page=${at}`);
  console.log(`read page ${at}`);
  await lease.send('Lease.checkpoint', { name: `page_${at}`, data: { next: at + 1 } });
  if (at === 2 && !resume) process.kill(process.pid, 'SIGKILL');
}
await browser.close();
console.log('done');
