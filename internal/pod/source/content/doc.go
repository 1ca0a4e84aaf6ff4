// Package content parses the text of one origin, such as a file, a URL or a call of the API. The result is the content
// that the origin wants on this node: completed pods and objects, and problems for the rest.
//
// It decides only and owns nothing. The packages below it read the origins that must be watched: directory the
// manifests of a directory, url the manifest at a URL. Package source resolves what all origins want.
package content
