// Package methods says what a worker may do over CDP: every method of Chrome is in one class.
// Some pass as they are. Some pass only with a URL of the web, with files inside the file
// roots, or without certain parameters. Others are refused. A method that is in no class is
// refused as if it did not exist, until somebody has classified it.
//
// The package is pure. It reads a command's parameters, and returns the files that the command
// names. Its caller finds out whether the session may use them.
package methods

import (
	"strings"
)

// Class is what happens to the commands of a method.
type Class uint8

// The classes. The zero value is for a method that is not in the table.
const (
	Unknown Class = iota
	// Passes: the command goes to the browser as it is.
	Passes
	// Handled: the launcher carries it out, or does something before it passes.
	Handled
	// Web: it passes with a URL that a page of the web could open, too.
	Web
	// Files: it passes with files in the session's exchange directory or a file root.
	Files
	// Limited: it passes without the parameters that Method.Without lists.
	Limited
	// Wire: it passes if HTTP can carry what it names: a method and names of headers that are
	// tokens, and no text with a line end, which would begin another line of a request.
	Wire
	// Flat: it passes if the sessions that it opens are used by their ids.
	Flat
	// Refused: it never passes.
	Refused
)

// String is the class's name in docs/cdp-methods.md.
func (c Class) String() string {
	return [...]string{"unknown", "passes", "handled by the launcher", "passes with a URL of the web", "passes inside the file roots", "passes without some parameters", "passes with what HTTP can carry", "passes with flatten set to true", "refused"}[c]
}

// Method is one method of the table.
type Method struct {
	Name  string
	Class Class
	// Why is one sentence that explains the class; empty if a method passes as it is.
	Why string
	// Without are the parameters with which a Limited method is refused; one of class Web may have them, too.
	Without []string
	// Effect is what its commands change; Undecided for a Refused method.
	Effect Effect
}

// Find returns the method of that name; nil if it is not in the table. It does not
// allocate.
func Find(name []byte) *Method { return byName[string(name)] }

// All returns the names of all methods of the table, in no order.
func All() []string {
	names := make([]string, 0, len(byName))
	for name := range byName {
		names = append(names, name)
	}
	return names
}

var byName = index()

func index() map[string]*Method {
	all := map[string]*Method{}
	add := func(m *Method) {
		if all[m.Name] != nil {
			panic("methods: " + m.Name + " is in two classes")
		}
		all[m.Name] = m
	}
	for domain, by := range passing {
		for effect, names := range map[Effect]string{Reads: by.reads, Sets: by.sets, Stays: by.stays, Acts: by.acts} {
			for name := range strings.FieldsSeq(names) {
				add(&Method{Name: domain + "." + name, Class: Passes, Effect: effect})
			}
		}
	}
	for _, group := range notPassing {
		for name := range strings.FieldsSeq(group.names) {
			add(&Method{Name: name, Class: group.class, Effect: group.effect, Why: group.why, Without: group.without})
		}
	}
	return all
}

// group are methods of one class, with a common reason.
type group struct {
	class   Class
	effect  Effect // of what passes
	names   string
	why     string
	without []string
}

const (
	wire              = "Chrome itself refuses line ends here, or leaves them out; the launcher does not rely on it."
	refusedExtensions = "An extension could change the proxy, and read and write files."
)

// notPassing are the methods that do not pass as they are. The sentences are shown to
// workers.
var notPassing = []group{
	// A worker may end its session at any time.
	{class: Handled, effect: Reads, names: "Browser.close", why: "It ends the session in order: the launcher closes the browser itself."},
	{class: Handled, effect: Acts, names: "Page.close Target.closeTarget", why: "The launcher opens an empty tab first if this is the last one, since Chrome would drop the session cookies with it."},

	{class: Handled, effect: Acts, names: "Target.exposeDevToolsProtocol", why: "The launcher itself carries what the page sends, as on a connection of the worker's own: Chrome would carry it past the lease. The target has to be an empty tab (about:blank) that no page opened, 16 at most on a connection; it ends with its document."},

	{class: Web, effect: Acts, names: "Page.navigate Target.createTarget", why: "A file: URL shows any file of the host, and Chrome's own pages can change its settings."},
	{class: Web, effect: Acts, names: "Network.loadNetworkResource", without: []string{"options.includeCredentials"}, why: "Chrome itself refuses what is not of the web here; the launcher does not rely on it. No event tells of the request, so what it does for the account could not be judged."},

	{class: Files, effect: Acts, names: "DOM.setFileInputFiles", why: "The page could read any file of the launcher's user."},
	// Clients send these when they connect. Downloads stay within the session's folders, whatever they say.
	{class: Files, effect: Reads, names: "Browser.setDownloadBehavior Page.setDownloadBehavior", why: "A page could write any file of the launcher's user by choosing the download's name."},

	{class: Limited, effect: Acts, names: "Target.createBrowserContext", without: []string{"proxyServer", "proxyBypassList", "originsWithUniversalNetworkAccess"}, why: "A context with a proxy of its own would go round the profile's proxy."},
	{class: Limited, effect: Acts, names: "Input.dispatchDragEvent", without: []string{"data.files"}, why: "A tab that does not take a dropped file opens it as a file: page, which shows any other file."},
	{class: Limited, effect: Reads, names: "Page.startScreenRecording", without: []string{"captureArea"}, why: "A recording of the window shows every tab in it, also one in which the launcher signs the account in."},
	{class: Limited, effect: Reads, names: "Tracing.start", without: []string{"perfettoConfig"}, why: "A tracing configuration in this form can name a file to write to."},

	{class: Wire, effect: Acts, names: "Fetch.continueRequest", why: "Chrome sends the method as it is: with a line end in it, it would be a message in another protocol to any port of the host. The URL has to be one of the web."},
	{class: Wire, effect: Acts, names: "Fetch.continueResponse Fetch.fulfillRequest Network.setCookie Network.setCookies Storage.setCookies", why: wire},
	{class: Wire, effect: Sets, names: "Emulation.setLocaleOverride Emulation.setUserAgentOverride Network.setExtraHTTPHeaders Network.setUserAgentOverride", why: wire},
	{class: Wire, effect: Stays, names: "Fetch.continueWithAuth", why: wire},

	{class: Flat, effect: Reads, names: "Target.attachToTarget Target.setAutoAttach", why: "Without it commands could only be sent by Target.sendMessageToTarget, which is refused."},

	{class: Refused, names: "Browser.crash Browser.crashGpuProcess", why: "It would end the browser without its evidence: release the lease instead."},
	{class: Refused, names: "Browser.executeBrowserCommand", why: "It opens parts of Chrome's own interface."},
	{class: Refused, names: "Browser.getBrowserCommandLine SystemInfo.getInfo", why: "It shows where the host keeps the profile, and the address of its proxy."},
	{class: Refused, names: "Browser.addPrivacySandboxEnrollmentOverride", why: "It changes the browser for the sessions that come after this one."},
	{class: Refused, names: "Target.sendMessageToTarget", why: "It carries commands past the lease: attach with flatten set to true."},
	{class: Refused, names: "Target.setRemoteLocations", why: "It makes Chrome connect to other hosts past the profile's proxy."},
	{class: Refused, names: "Target.openDevTools Target.getDevToolsTarget", why: "DevTools is one of Chrome's own pages, and can save files."},
	{class: Refused, names: "Input.synthesizePinchGesture Input.synthesizeScrollGesture Input.synthesizeTapGesture", why: "The browser goes on with it for as long as it says, also when the lease is lost or a person has taken over: send Input.dispatchTouchEvent or Input.dispatchMouseEvent."},
	{class: Refused, names: "Tethering.bind Tethering.unbind", why: "It opens ports of the host."},
	{class: Refused, names: `Cast.disable Cast.enable Cast.setSinkToUse Cast.startDesktopMirroring Cast.startTabMirroring
		Cast.stopCasting`, why: "It searches the host's network for devices and sends pages to them past the profile's proxy."},
	{class: Refused, names: "DeviceAccess.cancelPrompt DeviceAccess.disable DeviceAccess.enable DeviceAccess.selectPrompt", why: "It gives pages the host's USB, serial and Bluetooth devices."},
	{class: Refused, names: `PWA.changeAppUserSettings PWA.getOsAppState PWA.install PWA.launch PWA.launchFilesInApp
		PWA.openCurrentPageInApp PWA.uninstall`, why: "It installs programs for the launcher's user, and opens files with them."},
	{class: Refused, names: `Extensions.clearStorageItems Extensions.getExtensions Extensions.getStorageItems Extensions.loadUnpacked
		Extensions.removeStorageItems Extensions.setStorageItems Extensions.triggerAction Extensions.uninstall`, why: refusedExtensions},
}
