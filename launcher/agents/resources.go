package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"leasehold/launcher/api"
)

// scheme is that of the resources' addresses. What follows it is a path below /v1.
const scheme = "leasehold://"

// evidenceURI is the address of a bundle's manifest.
func evidenceURI(id string) string { return scheme + "evidence/" + url.PathEscape(id) }

// maxResource bounds a resource, in bytes: a client takes 16 MiB in one message, and a blob grows by
// a third.
const maxResource = 8 << 20

func addResources(s *sdk.Server, of func(*sdk.ServerSession) *Agent) {
	read := func(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		a := of(r.Session)
		if a == nil {
			return nil, errEnded
		}
		ctx, stop := a.bound(ctx)
		defer stop()
		return a.read(ctx, r.Params.URI)
	}
	for _, t := range []sdk.ResourceTemplate{
		{URITemplate: scheme + "profiles/{profile_id}/evidence", Name: "evidence of a profile", MIMEType: "application/json",
			Description: "The bundles of evidence of a profile, newest first, and the parts of each."},
		{URITemplate: scheme + "evidence/{evidence_id}", Name: "bundle of evidence", MIMEType: "application/json",
			Description: "What was saved when a session ended: pages, requests, checkpoints, and the names of the parts."},
		{URITemplate: scheme + "evidence/{evidence_id}/{part}", Name: "part of a bundle", Description: "A screenshot, page or record of a bundle."},
	} {
		s.AddResourceTemplate(&t, read)
	}
}

func (a *Agent) read(ctx context.Context, uri string) (*sdk.ReadResourceResult, error) {
	path := []string{"v1"}
	for segment := range strings.SplitSeq(strings.TrimPrefix(uri, scheme), "/") {
		decoded, err := url.PathUnescape(segment)
		if err != nil || decoded == "." || decoded == ".." {
			return nil, sdk.ResourceNotFoundError(uri)
		}
		path = append(path, decoded)
	}
	body, mediaType, err := a.sidecar.Ask(ctx, http.MethodGet, nil, nil, path...)
	var p *api.Problem
	switch {
	case errors.As(err, &p) && p.Status == http.StatusNotFound:
		return nil, sdk.ResourceNotFoundError(uri)
	case err != nil:
		return nil, errors.New(refusalOf("resources/read", err).Text)
	case len(body) > maxResource:
		return nil, fmt.Errorf("%s has %d bytes, and at most %d are sent here: GET /%s of the sidecar has it", uri, len(body), maxResource, strings.Join(path, "/"))
	}
	content := &sdk.ResourceContents{URI: uri, MIMEType: mediaType}
	if strings.HasPrefix(mediaType, "image/") || !utf8.Valid(body) {
		content.Blob = body
	} else {
		content.Text = string(body)
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{content}}, nil
}

// encoded is a value that came as JSON, as JSON again.
func encoded(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return nil // a value that was decoded from JSON can always be encoded
	}
	return b
}
