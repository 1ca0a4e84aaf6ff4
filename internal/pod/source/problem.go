package source

import "github.com/berth-run/berth/internal/pod/source/content"

// Problem is a manifest, or a part of one, that a source could not use.
type Problem = content.Problem

// ProblemKey identifies a problem by its origin and text.
type ProblemKey = content.ProblemKey

// reporter receives each problem once when it appears, and once when it is gone.
type reporter interface {
	SourceProblem(Problem)
	// SourceResolved receives each problem that is gone.
	SourceResolved(Problem)
}

// MissingError is the problem of manifests that disappeared with their directory while their pods run.
type MissingError = content.MissingError
