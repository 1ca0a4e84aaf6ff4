// Package payload keeps the files of volumes whose content is data: ConfigMaps, Secrets and fields of the pod.
//
// A Source decides which files a volume has. Each kind of volume has one, in its own sub-package of volume. This
// package makes a volume.Kind of a Source: it waits for the objects that the volume names, writes the files, and writes
// them again when an object changes.
//
//	<volume>/..2026_01_02_15_04_05.000000001/    one version of the files
//	<volume>/..data -> ..2026_01_02_15_04_05.000000001
//	<volume>/name   -> ..data/name               what a container opens
//
// A version is complete before ..data links to it, and one rename replaces ..data, so that a reader never finds an
// incomplete version. The previous version stays for a moment for readers that have followed the link already. The next
// write removes incomplete files of a killed agent.
//
// The files on disk are the state. The objects come from the table of package object, which payload only reads.
package payload
