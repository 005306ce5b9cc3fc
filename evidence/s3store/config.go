package s3store

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// Config says where the bundles are. Credentials are no part of it: they come
// from where AWS tools look for them, see Open.
type Config struct {
	Bucket string
	// Prefix is what all keys begin with; empty, or ending in a slash.
	Prefix string
	// Endpoint is host or host:port; empty is Amazon's own.
	Endpoint string
	// Insecure speaks HTTP instead of HTTPS to the endpoint.
	Insecure bool
	// Region is that of the bucket; empty asks the server.
	Region string
	// PathStyle puts the bucket into the path instead of the host name.
	PathStyle bool
}

// amazon is the endpoint where the URL names none.
const amazon = "s3.amazonaws.com"

var (
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	prefixName = regexp.MustCompile(`^[A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*$`)
	hostName   = regexp.MustCompile(`^[A-Za-z0-9.-]+(:[0-9]{1,5})?$|^\[[0-9a-fA-F:]+\](:[0-9]{1,5})?$`)
)

// ParseURL reads s3://bucket/prefix?endpoint=..&region=..&path_style=true. The
// endpoint is a host, with a port if need be, or an http:// or https:// URL of
// one; without a scheme it is spoken to in HTTPS. A URL with anything that could
// be a credential in it is refused, and errors repeat no value of such a URL.
func ParseURL(raw string) (Config, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "s3" {
		return Config{}, errors.New("want s3://bucket/prefix, with ?endpoint=, region= and path_style=true where the server is not Amazon's")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.Fragment != "" {
		return Config{}, errors.New("s3 URL: want name=value pairs behind the question mark, and no #")
	}
	const elsewhere = "credentials do not belong in the URL: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or keep them in ~/.aws/credentials"
	if u.User != nil {
		return Config{}, errors.New("s3 URL: " + elsewhere)
	}
	c := Config{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/")}
	for name, values := range query {
		if len(values) != 1 {
			return Config{}, fmt.Errorf("s3 URL: %.40q is given more than once", name)
		}
		switch value := values[0]; name {
		case "endpoint":
			if strings.Contains(value, "@") {
				return Config{}, errors.New("s3 URL: endpoint: " + elsewhere)
			}
			if c.Endpoint, c.Insecure, err = endpoint(value); err != nil {
				return Config{}, err
			}
		case "region":
			if c.Region = value; !hostName.MatchString(value) {
				return Config{}, fmt.Errorf("s3 URL: region %.40q: want a name such as eu-central-1", value)
			}
		case "path_style":
			if c.PathStyle, err = strconv.ParseBool(value); err != nil {
				return Config{}, fmt.Errorf("s3 URL: path_style %.40q: want true or false", value)
			}
		default:
			// Not the value: it could be a secret.
			return Config{}, fmt.Errorf("s3 URL: parameter %.40q is not known: want endpoint, region or path_style; %s", name, elsewhere)
		}
	}
	if !bucketName.MatchString(c.Bucket) {
		return Config{}, fmt.Errorf("s3 URL: bucket %.80q: want 3 to 63 of a-z 0-9 . -", c.Bucket)
	}
	if c.Prefix != "" {
		if !prefixName.MatchString(c.Prefix) || strings.Contains("/"+c.Prefix+"/", "/../") || strings.Contains("/"+c.Prefix+"/", "/./") {
			return Config{}, fmt.Errorf("s3 URL: prefix %.80q: want names of A-Z a-z 0-9 ! _ . * ' ( ) - with single slashes between", c.Prefix)
		}
		c.Prefix += "/"
	}
	return c, nil
}

func endpoint(value string) (host string, insecure bool, err error) {
	host, insecure = strings.CutPrefix(value, "http://")
	host = strings.TrimSuffix(strings.TrimPrefix(host, "https://"), "/")
	if !hostName.MatchString(host) {
		return "", false, fmt.Errorf("s3 URL: endpoint %.80q: want host, host:port, or http:// or https:// before it", value)
	}
	return host, insecure, nil
}

// String is the place without anything that only the connection needs.
func (c Config) String() string { return "s3://" + c.Bucket + "/" + c.Prefix }
