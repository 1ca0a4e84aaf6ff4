// Package problem turns the problems of manifests into events. Package source finds the problems.
package problem
