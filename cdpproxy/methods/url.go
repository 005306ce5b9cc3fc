package methods

import (
	"strings"
)

// Schemes that a worker may open. A page of the web can open each of them as well, or
// write what it shows itself. chrome-extension: are the pages of the profile's own
// extensions: nobody can add one over CDP.
var webSchemes = map[string]bool{
	"http": true, "https": true, "data": true, "blob": true, "javascript": true, "chrome-extension": true,
}

// Schemes of pages that are Chrome's own, or that show files. Chrome's own pages may do
// what no page of the web may: chrome://settings changes the proxy and the folder of
// downloads, and each chrome: page, also that of a new tab, can open it.
var privilegedSchemes = map[string]bool{
	"file": true, "filesystem": true, "externalfile": true, "content": true,
	"chrome": true, "chrome-untrusted": true, "chrome-search": true, "chrome-native": true, "chrome-distiller": true, "dom-distiller": true,
	"devtools": true, "isolated-app": true, "trace": true,
}

// builtIn are the ids of extensions that come with Chrome, such as its viewer of PDF
// files. Unlike those that a profile's owner installed, their pages may open Chrome's own
// pages and manage other extensions.
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

// isBuiltIn tells whether what follows chrome-extension: is a page of such an extension.
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

// scheme reads a URL's scheme as Chrome does: it cuts control characters and spaces at
// both ends, drops tabs and line ends everywhere, and does not mind the case. rest is
// what follows the colon. A URL without a scheme has "".
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

// CheckURL returns nil for a URL that a worker may open: one that a page of the web could
// open too. A URL without a scheme is one of them, since Chrome refuses it itself, or
// opens about:blank instead.
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

// aboutPage tells whether an about: URL is one of those that Chrome does not turn into
// one of its own pages.
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

// maxShown is how much of a URL or a path is shown of what was refused, in bytes.
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
