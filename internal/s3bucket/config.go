package s3bucket

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// Config names a bucket. It contains no credentials: Open looks for them where AWS tools do.
type Config struct {
	Bucket string
	// Prefix is what all keys begin with. It is empty, or ends in a slash.
	Prefix string
	// Endpoint is host or host:port; empty is Amazon's.
	Endpoint string
	// Insecure speaks HTTP instead of HTTPS to the endpoint.
	Insecure bool
	// Region is the region of the bucket. If it is empty, the server is asked.
	Region string
	// PathStyle puts the bucket into the path instead of the host name.
	PathStyle bool
}

// amazon is the endpoint if the URL names none.
const amazon = "s3.amazonaws.com"

var (
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	prefixName = regexp.MustCompile(`^[A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*$`)
	hostName   = regexp.MustCompile(`^[A-Za-z0-9.-]+(:[0-9]{1,5})?$|^\[[0-9a-fA-F:]+\](:[0-9]{1,5})?$`)
)

// ParseURL reads s3://bucket/prefix?endpoint=..&region=..&path_style=true. The endpoint
// is a host, with a port if need be, or an http:// or https:// URL of one; without a
// scheme it is HTTPS. A URL with anything in it that could be a credential is refused,
// and the errors do not repeat such a value.
func ParseURL(raw string) (Config, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "s3" {
		return Config{}, errors.New("want s3://bucket/prefix, with ?endpoint=, region= and path_style=true where the server is not Amazon's")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.Fragment != "" {
		return Config{}, errors.New("s3 URL: want name=value pairs behind the question mark, and no #")
	}
	if u.User != nil {
		return Config{}, errors.New("s3 URL: " + credentialsHint)
	}
	c := Config{Bucket: u.Host}
	for name, values := range query {
		if len(values) != 1 {
			return Config{}, fmt.Errorf("s3 URL: %.40q is given more than once", name)
		}
		if err := c.setParameter(name, values[0]); err != nil {
			return Config{}, fmt.Errorf("s3 URL: %w", err)
		}
	}
	if !bucketName.MatchString(c.Bucket) {
		return Config{}, fmt.Errorf("s3 URL: bucket %.80q: want 3 to 63 of a-z 0-9 . -", c.Bucket)
	}
	if prefix := strings.Trim(u.Path, "/"); prefix != "" {
		if !prefixName.MatchString(prefix) || strings.Contains("/"+prefix+"/", "/../") || strings.Contains("/"+prefix+"/", "/./") {
			return Config{}, fmt.Errorf("s3 URL: prefix %.80q: want names of A-Z a-z 0-9 ! _ . * ' ( ) - with single slashes between", prefix)
		}
		c.Prefix = prefix + "/"
	}
	return c, nil
}

const credentialsHint = "credentials do not belong in the URL: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or keep them in ~/.aws/credentials"

// setParameter reads one parameter of the URL's query.
func (c *Config) setParameter(name, value string) (err error) {
	switch name {
	case "endpoint":
		if strings.Contains(value, "@") {
			return errors.New("endpoint: " + credentialsHint)
		}
		c.Endpoint, c.Insecure, err = endpoint(value)
		return err
	case "region":
		if !hostName.MatchString(value) {
			return fmt.Errorf("region %.40q: want a name such as eu-central-1", value)
		}
		c.Region = value
	case "path_style":
		if c.PathStyle, err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("path_style %.40q: want true or false", value)
		}
	default:
		// The value is not shown: it could be a secret.
		return fmt.Errorf("parameter %.40q is not known: want endpoint, region or path_style; %s", name, credentialsHint)
	}
	return nil
}

func endpoint(value string) (host string, insecure bool, err error) {
	host, insecure = strings.CutPrefix(value, "http://")
	host = strings.TrimSuffix(strings.TrimPrefix(host, "https://"), "/")
	if !hostName.MatchString(host) {
		return "", false, fmt.Errorf("endpoint %.80q: want host, host:port, or http:// or https:// before it", value)
	}
	return host, insecure, nil
}

// String returns bucket and prefix as a URL.
func (c Config) String() string { return "s3://" + c.Bucket + "/" + c.Prefix }
