// Package powercut has the record of what an agent has confirmed to a machine that loses power.
//
// The machine prints a Line to its console before and after each change. The Ledger of the host reads them: a change
// that was confirmed before the cut must be there after it, and one that was only begun may be.
package powercut
