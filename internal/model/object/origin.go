package object

// AnnotationRemoval of a PersistentVolume is the time when the agent removes it, because its claim was deleted.
const AnnotationRemoval = "berth.run/removal-time"

// Origin is where an object was read.
type Origin struct {
	// Path is a file, a URL, or the command that supplied the object.
	Path string `json:"path"`
	// Dir is the directory of the file when the file was read. It is zero for an object that comes from no file.
	Dir Directory `json:"dir,omitzero"`
}

// Directory identifies a directory of the machine. So an empty directory below an unmounted mount point, or one that
// was made anew, is not mistaken for it. All fields together identify it: file systems use inode numbers again, and
// device numbers may change with a reboot. If an unchanged directory is wrongly taken for another one, data stays that
// could be removed. No data is lost.
type Directory struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	// Handle is the kernel's file handle, which has the generation of the inode. It is empty on a file system without
	// handles.
	Handle string `json:"handle,omitempty"`
	// Mount says that the directory is the root of a mount.
	Mount bool `json:"mount,omitempty"`
}

// IsZero reports whether no directory is identified.
func (d Directory) IsZero() bool { return d == Directory{} }

// Fate says why an object is in no manifest.
type Fate int

// Fates of an object.
const (
	// Untraced: the source of the object is not read, or not there.
	Untraced Fate = iota
	// Present: the manifest is there, faulty or without the object.
	Present
	// Unsure: the manifest was removed, but another manifest is faulty and may contain the object.
	Unsure
	// Removed: a user removed the manifest from its directory, which exists and is readable.
	Removed
)
