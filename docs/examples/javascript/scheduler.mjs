// A scheduler: one job for each of twenty accounts, a few at a time: node scheduler.mjs
import { setTimeout as sleep } from 'node:timers/promises';
import { chromium } from 'playwright-core';

const sidecar = process.env.LEASEHOLD_URL ?? 'http://127.0.0.1:9333';
const shop = `http://127.0.0.1:${process.env.PORT ?? 8080}/`;
const accounts = Number(process.env.ACCOUNTS ?? 20);
const atOnce = Number(process.env.AT_ONCE ?? 4);

async function api(method, path, body) {
  const answer = await fetch(sidecar + path, {
    method, headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body),
  });
  const content = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(`${content.code}: ${content.detail}`), content);
  return content;
}

// What passes by itself is asked for again: the profile is in use, cools down, or the host is
// full. Anything else is for a person, or wrong.
async function lease(account, task) {
  for (;;) {
    try {
      return await api('POST', '/v1/sessions', {
        account_id: account, task_id: task, worker_id: 'scheduler', wait: '60s', lock_timeout_seconds: 900,
      });
    } catch (problem) {
      if (!problem.retry_after_seconds) throw problem;
      await sleep(problem.retry_after_seconds * 1000);
    }
  }
}

async function run(account) {
  const session = await lease(account, `visit_${account}`);
  const end = { lease_token: session.lease_token, outcome: 'failed', recover: 'touched' };
  try {
    const browser = await chromium.connectOverCDP(session.cdp_url);
    const page = browser.contexts()[0].pages()[0];
    await page.goto(shop);
    console.log(`${account}: ${await page.textContent('#visits')}`);
    await browser.close(); // the session stays, for the outcome
    Object.assign(end, { outcome: 'succeeded', recover: '' });
  } finally {
    await api('DELETE', `/v1/sessions/${session.session_id}`, end);
  }
}

const jobs = Array.from({ length: accounts }, (_, i) => `customer_${String(i + 1).padStart(2, '0')}`);
for (const account of jobs) { // once: an account belongs to a profile for good
  await api('PUT', `/v1/profiles/shop_${account}`, { account_id: account });
}
let failed = 0;
await Promise.all(Array.from({ length: atOnce }, async () => {
  for (let account = jobs.shift(); account; account = jobs.shift()) {
    await run(account).catch((error) => { failed++; console.error(`${account}: ${error.message}`); });
  }
}));
console.log(`${accounts - failed} of ${accounts} are done`);
