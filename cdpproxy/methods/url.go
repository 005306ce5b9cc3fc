package methods

import (
	"strings"
)

// Schemes that a worker may open. A page of the web can open each of them as well, or could
// show the same content itself. chrome-extension: is for the pages of the profile's own
// extensions: nobody can add an extension over CDP.
var webSchemes = map[string]bool{
	"http": true, "https": true, "data": true, "blob": true, "javascript": true, "chrome-extension": true,
}

// Schemes of pages that are Chrome's own, or that show files. Chrome's own pages can do things
// that no page of the web can: chrome://settings changes the proxy and the download folder, and
// every chrome: page, even that of a new tab, can open it.
var privilegedSchemes = map[string]bool{
	"file": true, "filesystem": true, "externalfile": true, "content": true,
	"chrome": true, "chrome-untrusted": true, "chrome-search": true, "chrome-native": true, "chrome-distiller": true, "dom-distiller": true,
	"devtools": true, "isolated-app": true, "trace": true,
}

// builtIn are the ids of extensions that come with Chrome, such as its PDF viewer. Unlike those
// that a profile's owner installed, their pages can open Chrome's own pages and manage other
// extensions.
var builtIn = map[string]bool{
	"mhjfbmdgcfjbbpaeojofohoefgiehjai": true, // PDF
	"nkeimhogjdpnpccoofpliimaahmaaome": true, // calls
	"ahfgeienlihckogmohjhadlkjgocpleb": true, // the store
	"gfdkimpbcpahaombhbimeihdjnejgicl": true, // feedback
	"pkedcjkdefgpdelpbcmbmeomcjbeemfm": true, // casting
	"mfehgcgbbipciphmccgaenjidiccnmng": true, // printing
	"neajdppkdcdipfabeoofebfddakdcjhd": true, // speech
	"fignfifoniblkonapihmkfakmlgkbkcf": true, // speech
	"jdfhpkjeckflbbleddjlpimecpbjdeep": true, // reading
	"nmmhkkegccagdldgiimedpiccmgmieda": true, // payments
}

// isBuiltIn tells whether the text after chrome-extension: is a page of such an extension.
func isBuiltIn(rest string) bool {
	id, _, _ := strings.Cut(strings.TrimLeft(rest, `/\`), "/")
	id, _, _ = strings.Cut(id, `\`)
	id, _, _ = strings.Cut(id, "?")
	id, _, _ = strings.Cut(id, "#")
	if _, host, user := strings.Cut(id, "@"); user {
		id = host
	}
	id, _, _ = strings.Cut(id, ":")
	return builtIn[strings.ToLower(id)] || strings.Contains(id, "%")
}

// scheme reads a URL's scheme as Chrome does: it removes control characters and spaces at both
// ends, removes tabs and line ends everywhere, and ignores the case. rest is the text after the
// colon. The scheme of a URL without one is "".
func scheme(url string) (name, rest string) {
	url = strings.TrimFunc(url, func(r rune) bool { return r <= ' ' })
	url = strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(url)
	at := strings.IndexByte(url, ':')
	if at < 1 {
		return "", url
	}
	name = strings.ToLower(url[:at])
	for i, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z'
		if !letter && (i == 0 || (c < '0' || c > '9') && c != '+' && c != '-' && c != '.') {
			return "", url
		}
	}
	return name, url[at+1:]
}

// maxNesting is how many schemes may stand before another one, as in view-source:.
const maxNesting = 8

// CheckURL returns nil for a URL that a worker may open: one that a page of the web could open,
// too. A URL without a scheme is allowed, since Chrome itself refuses it, or opens about:blank
// instead.
func CheckURL(url string) *Refusal {
	outer := url
	for range maxNesting {
		name, rest := scheme(url)
		switch {
		case name == "":
			return nil
		case name == "view-source", name == "blob" && privileged(rest):
			url = rest
			continue
		case name == "chrome-extension" && isBuiltIn(rest):
			return refuseURL(outer, "it is a page of an extension that comes with Chrome")
		case webSchemes[name]:
			return nil
		case name == "about" && aboutPage(rest):
			return nil
		case privilegedSchemes[name], name == "about":
			return refuseURL(outer, name+": shows files of the host, or is a page of Chrome's own")
		}
		return refuseURL(outer, name+": could start another program")
	}
	return refuseURL(outer, "it has too many schemes")
}

// aboutPage tells whether an about: URL is one that Chrome does not turn into one of its own
// pages.
func aboutPage(rest string) bool {
	page, _, _ := strings.Cut(rest, "#")
	page, _, _ = strings.Cut(page, "?")
	return page == "blank" || page == "srcdoc"
}

// Privileged tells whether a page with this URL shows a file, or is one of Chrome's own.
// The URL is as Chrome reports it.
func Privileged(url string) bool { return privileged(url) }

func privileged(url string) bool {
	for range maxNesting {
		name, rest := scheme(url)
		if name != "view-source" && name != "blob" {
			return privilegedSchemes[name] || name == "chrome-extension" && isBuiltIn(rest)
		}
		url = rest
	}
	return true
}

// maxShown is how much of a refused URL or path is shown, in bytes.
const maxShown = 200

func shown(s string) string {
	if len(s) > maxShown {
		s = strings.ToValidUTF8(s[:maxShown], "") + "..."
	}
	return s
}

func refuseURL(url, why string) *Refusal {
	return &Refusal{
		Reason: ReasonURL, What: url, Code: codeServer,
		Text: "the URL " + quote(shown(url)) + " is not one that a worker may open, since " + why + "; http:, https:, data:, blob:, about:blank and the pages of the profile's extensions are allowed",
	}
}
