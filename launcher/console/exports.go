package console

import "net/url"

// Export is the address at which a bundle is saved as one file, in a format of package export:
// decrypted or, with stored, as it is stored.
func (v *view) Export(evidenceID, format string, stored bool) string {
	address := "/v1/evidence/" + url.PathEscape(evidenceID) + "/export"
	query := "?format=" + format
	if stored {
		query += "&stored=true"
	}
	if v.Query != "" { // Query begins with a question mark
		query += "&" + v.Query[1:]
	}
	return address + query
}
