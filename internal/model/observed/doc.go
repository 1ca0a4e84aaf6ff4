// Package observed has the table of what the container runtime shows of each pod. Package pleg writes it and marks it
// synced. The agent makes the table before both its writer and its readers, so that neither has to look for the other.
package observed
