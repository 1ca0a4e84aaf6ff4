package offline

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/berth-run/berth/internal/base/checkpoint"
)

// keySize is the size of an AES-256 key in bytes.
const keySize = 32

// loadKey reads the key from a file: 32 bytes in base64, readable only by the owner. With create it makes a missing
// key.
func loadKey(path string, create bool) (cipher.AEAD, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && create {
		return makeKey(path)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the file was only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil,
			fmt.Errorf("%s has mode %#o, which lets other users read the key; next: chmod 0600 %s", path, mode, path)
	}
	text := make([]byte, base64.StdEncoding.EncodedLen(keySize)+2)
	n, err := f.Read(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text[:n])))
	if err != nil || len(key) != keySize {
		return nil,
			fmt.Errorf("%s is not a key: want %d bytes in base64; next: make one with head -c %d /dev/urandom | base64",
				path,
				keySize, keySize)
	}
	return aead(key)
}

// makeKey makes a key. The complete key is on disk before anything is encrypted with it.
func makeKey(path string) (cipher.AEAD, error) {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	if err := checkpoint.Replace(path, []byte(base64.StdEncoding.EncodeToString(key)+"\n")); err != nil {
		return nil, err
	}
	return aead(key)
}

func aead(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
