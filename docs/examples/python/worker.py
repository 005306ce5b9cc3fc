"""A worker in Python: python3 worker.py"""

import os
import sys

from cdp import CDP, Refused

sidecar = os.environ.get("LEASEHOLD_URL", "http://127.0.0.1:9333").replace("http", "ws", 1)
shop = f"http://127.0.0.1:{os.environ.get('PORT', '8080')}/"

try:
    browser = CDP(f"{sidecar}/devtools/browser/shop_018?worker=worker-10&task=task_106&create=true&wait=60s")
except Refused as refusal:
    sys.exit(str(refusal))

# The tab that is open, as a session of its own on this connection.
pages = [t for t in browser.call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
page = browser.call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)["sessionId"]

browser.call("Lease.step", session=page, name="look_at_the_shop")
browser.call("Page.enable", session=page)
browser.call("Page.navigate", session=page, url=shop)
browser.wait("Page.loadEventFired")
visits = browser.call("Runtime.evaluate", session=page, expression="document.querySelector('#visits').textContent")
print("Python:", visits["result"]["value"])
browser.close()
