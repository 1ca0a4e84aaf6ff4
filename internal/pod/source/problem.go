package source

import "github.com/berth-run/berth/internal/pod/source/content"

// Problem is a manifest, or a part of one, that a source could not use.
type Problem = content.Problem

// ProblemKey identifies a problem by its origin and text.
type ProblemKey = content.ProblemKey

// reporter receives each problem once, when it appears.
type reporter interface {
	SourceProblem(Problem)
}
