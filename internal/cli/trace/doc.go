// Package trace is "berth trace": the start of a pod as a waterfall or a picture, and how long the steps of several
// starts took. Package timeline draws, and its package compare finds the numbers.
package trace
