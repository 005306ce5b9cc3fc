package main

// all are the suites, those of the most worth first.
var all = []suite{
	{name: "rod", version: rodVersion, prepare: prepareRod, leftOut: rodLeftOut, exceptions: rodExceptions},
	{name: "cri", version: criRepository.version, prepare: prepareCRI},
	{name: "chromedp", version: chromedpVersion, prepare: prepareChromedp, leftOut: chromedpLeftOut},
	{name: "puppeteer", version: puppeteerRepository.version, prepare: preparePuppeteer, leftOut: puppeteerLeftOut, exceptions: puppeteerExceptions, alone: true},
	{name: "playwright-page", version: playwrightRepository.version, prepare: preparePlaywright("page"), leftOut: playwrightLeftOut, exceptions: playwrightExceptions},
	{name: "playwright-library", version: playwrightRepository.version, prepare: preparePlaywright("library"), leftOut: playwrightLeftOut, exceptions: playwrightExceptions},
}

var rodLeftOut = []exception{}

var rodExceptions = []exception{
	except("TestBrowserCrash", "crashes the browser by a command: Browser.crash is refused, since other sessions and the evidence would go with it"),
}

var puppeteerLeftOut = []exception{
	except(`test/src/cdp/pipe\.spec\.ts.*`, "starts Chrome on a pipe of its own"),
	except(`test/src/(webExtension|cdp/extensions)\.spec\.ts.*`, "starts Chrome on a pipe of its own, with extensions"),
	except(`test/src/headful\.spec\.ts.*`, "shows a window, for which there is no display"),
	except(`test/src/proxy\.spec\.ts.*`, "names a proxy in Chrome's arguments: both sides have those of the sidecar"),
	except(`test/src/cdp/devtools\.spec\.ts.*`, "has Chrome's arguments open its developer tools: both sides have those of the sidecar"),
}

var puppeteerExceptions = []exception{
	except(`test/src/requestinterception(-experimental)?\.spec\.ts › .* › should work with file URLs`, "opens a file: URL, which the sidecar refuses: it shows a file of the host"),
	except(`test/src/page\.spec\.ts › .* › should throw when page crashes`, "opens chrome://crash, which is refused, as all of Chrome's own pages are"),
	except(`test/src/oopif\.spec\.ts › OOPIF › should (exposeFunction|evaluate) on a page with a PDF viewer`,
		"runs a script in Chrome's own viewer of PDF files, which is refused, as in all of Chrome's own pages"),
	except(`test/src/input\.spec\.ts › .* › should (succeed even for|error on read of) non-existent files`,
		"chooses a file that does not exist, which is refused: it could become a link to any file of the host"),
	except(`test/src/device-request-prompt\.spec\.ts › .*`, "asks for the host's Bluetooth and USB devices, which are refused"),
	except(`test/src/cdp/prerender\.spec\.ts › .*(via input|receive requests from the prerendered page|configure viewport for prerendered pages)`,
		"Chrome prerenders no page to which a client without sessions on tabs is attached, on a port neither: the launcher is one"),
}

var playwrightLeftOut = []exception{
	except(`tests/library/(browsertype-(launch|connect)[^/]*|launcher|browser-server|signals|chromium/(launcher|bidi[^/]*))\.spec\.ts.*`, "starts browsers or servers of Playwright's own, not over CDP"),
	except(`tests/library/defaultbrowsercontext-[12]\.spec\.ts.*`, "starts Chrome on a directory of its own, not over CDP"),
	except(`tests/library/(headful|chromium/extensions)\.spec\.ts.*`, "shows a window, or starts Chrome with extensions"),
	except(`tests/library/(proxy|downloads-path)\.spec\.ts.*`, "names a proxy or a directory when it starts Chrome"),
	except(`tests/library/(trace-viewer[^/]*|debug-controller|inspector/.*)\.spec\.ts.*`, "tests tools of Playwright's own, in browsers that these start"),
	except(`tests/library/(unit/.*|role-utils|css-parser|component-parser|locator-generator|snapshot-renderer|proxy-pattern)\.spec\.ts.*`, "tests parsers and rules of Playwright's own, whatever the browser"),
}

var playwrightExceptions = []exception{
	except(`tests/page/(page-history\.spec\.ts › page\.goBack should work for file urls|page-goto\.spec\.ts › should work with file URL.*|page-network-response\.spec\.ts › should provide a Response with a file URL)`, "opens file: URLs, which the sidecar refuses: they show files of the host"),
	except(`tests/library/capabilities\.spec\.ts › should play (webm )?video @smoke`, "opens a file: URL, which the sidecar refuses: it shows a file of the host"),
	except(`tests/library/(browsercontext-proxy\.spec|fetch-proxy\.spec|client-certificates\.spec|chromium/connect-over-cdp\.spec\.ts › should use proxy with connectOverCDP).*`, "gives a context a proxy of its own, which is refused: what a profile sends goes its own way"),
	except(`tests/library/page-event-crash\.spec\.ts.*`, "opens chrome://crash, which is refused, as all of Chrome's own pages are"),
	except(`tests/library/chromium/connect-over-cdp\.spec\.ts › should get title and URL of existing page`, "takes the first page for its own: the sidecar's browser has a first tab"),
	except(`tests/library/chromium/chromium\.spec\.ts › (serviceWorker\(\), and fromServiceWorker\(\) work|should produce network events, routing, and annotations for Service Worker|should report intercepted service worker requests in HAR)`,
		"Chrome does not tell of the answer to a service worker's own script where a second client is attached to it, on a port neither: the launcher is one"),
	except(`tests/page/page-basic\.spec\.ts › has navigator\.webdriver set to true`, "Chrome sets it on a port of its own choice, and not on a fixed one, nor does the sidecar"),
}

var chromedpLeftOut = []exception{
	except("TestEnv", "sets the environment of the browser's process: the sidecar starts it, with its own"),
	except("TestModifyCmdFunc", "changes the command that starts the browser: the sidecar starts it"),
	except("TestCombinedOutput|TestExecAllocatorPipeStartFailure", "reads what the browser prints: the sidecar keeps that, as evidence"),
	except("TestVisibleWindow", "shows a window, for which there is no display"),
}
