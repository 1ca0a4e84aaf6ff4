// Package plot draws series of measurements as one page of HTML that needs no other file, and fits lines to them. The
// same values as a table are CSV. The package only computes. Its callers measure, and write the files.
package plot
