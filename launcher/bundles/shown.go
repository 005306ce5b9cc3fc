package bundles

import (
	"cmp"

	"leasehold/evidence"
	"leasehold/launcher/api"
)

// pagesOf are the pages that a bundle shows. A page that was about to navigate when the worker
// was lost has the URL of the document that it still showed.
func pagesOf(m evidence.Manifest) []api.BundlePage {
	var pages []api.BundlePage
	for _, p := range m.Pages {
		pages = append(pages, api.BundlePage{
			TargetID: p.TargetID, URL: cmp.Or(p.CommittedURL, p.URL), Title: p.Title, Screenshot: p.Screenshot, Missing: p.Missing,
			Dialog: p.Dialog, Crashed: p.Crashed, Primary: p.Primary,
		})
	}
	return pages
}

// picturesOf are the pictures, taken while the session lived, that a bundle names.
func picturesOf(m evidence.Manifest) []api.BundlePicture {
	var pictures []api.BundlePicture
	for _, p := range m.Pictures {
		pictures = append(pictures, api.BundlePicture{
			EvidenceID: p.EvidenceID, Part: evidence.PicturePart, At: p.At, URL: p.URL, Step: p.Step, Checkpoint: p.Checkpoint, Missing: p.Missing,
		})
	}
	return pictures
}
