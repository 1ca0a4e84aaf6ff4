// Package url polls the manifest at a URL. It owns the last manifest that the server returned and writes to a Sink.
package url
