"""A scheduler: one job for each of twenty accounts, a few at a time: python3 scheduler.py"""

import json
import os
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from cdp import CDP

sidecar = os.environ.get("LEASEHOLD_URL", "http://127.0.0.1:9333")
shop = f"http://127.0.0.1:{os.environ.get('PORT', '8080')}/"
accounts = int(os.environ.get("ACCOUNTS", "20"))
at_once = int(os.environ.get("AT_ONCE", "4"))


def api(method, path, body):
    request = urllib.request.Request(sidecar + path, json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def lease(account, task):
    """What passes by itself is asked for again: the profile is in use, cools down, or the host
    is full. Anything else is for a person, or wrong."""
    while True:
        try:
            return api("POST", "/v1/sessions", {
                "account_id": account, "task_id": task, "worker_id": "scheduler", "wait": "60s", "lock_timeout_seconds": 900})
        except urllib.error.HTTPError as refused:
            problem = json.load(refused)
            if "retry_after_seconds" not in problem:
                raise RuntimeError(f"{problem['code']}: {problem['detail']}") from None
            time.sleep(problem["retry_after_seconds"])


def run(account):
    session = lease(account, f"visit_{account}")
    end = {"lease_token": session["lease_token"], "outcome": "failed", "recover": "touched"}
    try:
        browser = CDP(session["cdp_url"])
        page = next(t for t in browser.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        tab = browser.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        browser.call("Page.enable", session=tab)
        browser.call("Page.navigate", session=tab, url=shop)
        browser.wait("Page.loadEventFired")
        visits = browser.call("Runtime.evaluate", session=tab, expression="document.querySelector('#visits').textContent")
        print(f"{account}: {visits['result']['value']}", flush=True)
        browser.close()  # the session stays, for the outcome
        end.update(outcome="succeeded", recover="")
    finally:
        api("DELETE", f"/v1/sessions/{session['session_id']}", end)


names = [f"customer_{i + 1:02}" for i in range(accounts)]
for name in names:  # once: an account belongs to a profile for good
    api("PUT", f"/v1/profiles/shop_{name}", {"account_id": name})
with ThreadPoolExecutor(at_once) as workers:
    failures = [job.exception() for job in [workers.submit(run, name) for name in names]]
for failure in filter(None, failures):
    print(failure)
print(f"{failures.count(None)} of {accounts} are done")
