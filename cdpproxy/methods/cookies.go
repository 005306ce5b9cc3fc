package methods

import "bytes"

// CookieUse tells what a command does with the cookies of a browser context: whether it returns
// them (reads), and whether it sets or removes some (writes). A script reads them if it names
// document.cookie or the Cookie Store API; a script that puts these names together from pieces
// is not recognized. What a script writes looks like an act of the page.
//
// It is called on the data path, for every command, and does not allocate.
func CookieUse(method, params []byte) (reads, writes bool) {
	if len(method) == 0 {
		return false, false
	}
	switch method[0] {
	case 'N', 'S':
		switch string(method) {
		case "Network.getCookies", "Network.getAllCookies", "Storage.getCookies":
			return true, false
		case "Network.setCookie", "Network.setCookies", "Network.deleteCookies", "Network.clearBrowserCookies",
			"Storage.setCookies", "Storage.clearCookies", "Storage.clearDataForOrigin", "Storage.clearDataForStorageKey":
			return false, true
		}
	case 'R', 'P', 'D':
		switch string(method) {
		case "Runtime.evaluate", "Runtime.callFunctionOn", "Runtime.compileScript", "Debugger.evaluateOnCallFrame",
			"Page.addScriptToEvaluateOnNewDocument", "Page.addScriptToEvaluateOnLoad":
			return bytes.Contains(params, documentCookie) || bytes.Contains(params, cookieStore), false
		}
	}
	return false, false
}

var documentCookie, cookieStore = []byte("document.cookie"), []byte("cookieStore.get")
