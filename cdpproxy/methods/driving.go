package methods

import (
	"slices"
	"strings"
	"time"
)

// Driving are methods that act on pages, with a common reason.
type Driving struct {
	Names []string
	Why   string
}

// driving are the methods that a worker may not use while a person has its session. If two act
// at once, they undo each other's work, and what the journal attributes to the person has to be
// the person's. Methods that only read are allowed. So is what a client needs to follow the
// pages: it sends Emulation commands and scripts for new documents to each tab that the person
// opens. So is the answer to a request that the worker has paused, which would hang without it.
// Runtime.evaluate and the like are allowed, too, because nobody can tell a script that reads
// from one that acts.
var driving = []struct{ names, why string }{
	{`Input.cancelDragging Input.dispatchDragEvent Input.dispatchKeyEvent Input.dispatchMouseEvent Input.dispatchTouchEvent
		Input.emulateTouchFromMouseEvent Input.imeSetComposition Input.insertText Input.synthesizePinchGesture
		Input.synthesizeScrollGesture Input.synthesizeTapGesture`, "It is input."},
	{"Input.setIgnoreInputEvents Input.setInterceptDrags", "It would take the person's own input away."},
	{"Page.navigate Page.navigateToHistoryEntry Page.reload Page.resetNavigationHistory Page.setDocumentContent Page.stopLoading", "It is navigation."},
	{"Page.close Page.crash Target.closeTarget Target.createTarget Target.disposeBrowserContext", "It opens or closes pages."},
	{"Page.bringToFront Page.setWebLifecycleState Target.activateTarget", "It would take the page away that the person looks at."},
	{`Autofill.trigger FedCm.clickDialogButton FedCm.dismissDialog FedCm.openUrl FedCm.selectAccount Page.handleJavaScriptDialog
		WebMCP.invokeTool`, "It answers in the person's place."},
	{"DOM.focus DOM.forceShowPopover DOM.scrollIntoViewIfNeeded DOM.setFileInputFiles", "It acts on the page as a person would."},
	{`DOM.copyTo DOM.moveTo DOM.redo DOM.removeAttribute DOM.removeNode DOM.setAttributeValue DOM.setAttributesAsText
		DOM.setNodeName DOM.setNodeValue DOM.setOuterHTML DOM.undo`, "It changes the page under the person's hands."},
	{`CacheStorage.deleteCache CacheStorage.deleteEntry DOMStorage.clear DOMStorage.removeDOMStorageItem DOMStorage.setDOMStorageItem
		IndexedDB.clearObjectStore IndexedDB.deleteDatabase IndexedDB.deleteObjectStoreEntries Network.clearBrowserCookies
		Network.deleteCookies Network.deleteDeviceBoundSession Network.replayXHR Network.setCookie Network.setCookies Page.deleteCookie
		ServiceWorker.deliverPushMessage ServiceWorker.dispatchPeriodicSyncEvent ServiceWorker.dispatchSyncEvent ServiceWorker.unregister
		Storage.clearCookies Storage.clearDataForOrigin Storage.clearDataForStorageKey Storage.deleteStorageBucket Storage.setCookies`,
		"It changes what the account has stored, or sends something."},
}

// WhileDriven returns the methods that are refused while a person has the session, grouped by
// why.
func WhileDriven() []Driving {
	var all []Driving
	for _, d := range driving {
		names := strings.Fields(d.names)
		slices.Sort(names)
		all = append(all, Driving{names, d.why})
	}
	return all
}

func markDriving(all map[string]*Method) {
	for _, d := range driving {
		for name := range strings.FieldsSeq(d.names) {
			if all[name] == nil || all[name].Drives {
				panic("methods: " + name + " is in no class, or drives twice")
			}
			all[name].Drives = true
		}
	}
}

// RefusePerson is the refusal of a command that drives pages while the person of that name has
// the session.
func RefusePerson(name string, since time.Time) *Refusal {
	return &Refusal{
		Reason: ReasonPerson, Code: codeServer,
		Text: name + " has taken over the session since " + since.UTC().Format(time.RFC3339) +
			": input, navigation and writes are theirs until they hand it back; what only reads passes",
	}
}
