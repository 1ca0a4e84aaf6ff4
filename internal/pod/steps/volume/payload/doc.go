// Package payload keeps the files of volumes that are made of values: of
// ConfigMaps, Secrets and the pod itself.
//
// What the files are is decided by a Source, in a sub-package of volume for each
// kind. This package makes a volume.Kind of it: it waits for the objects that
// the volume names, writes the files, and writes them again when an object
// changes.
//
//	<volume>/..2026_01_02_15_04_05.000000001/    one version of the files
//	<volume>/..data -> ..2026_01_02_15_04_05.000000001
//	<volume>/name   -> ..data/name               what a container opens
//
// A version is complete before ..data leads to it, and ..data is replaced by one
// rename, so that a reader never finds half of anything. The version before stays
// for a moment: for a reader that is on its way to it. What a killed agent left
// half done is removed by the next write.
//
// The files on disk are the state. The objects come from the table of package
// object; nothing is written there.
package payload
