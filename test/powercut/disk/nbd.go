package disk

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// The numbers of the protocol (NetworkBlockDevice: doc/proto.md). All of them are big-endian.
const (
	magicServer = 0x4e42444d41474943 // "NBDMAGIC"
	magicOption = 0x49484156454f5054 // "IHAVEOPT"
	magicAnswer = 0x0003e889045565a9
	magicCall   = 0x25609513
	magicReply  = 0x67446698

	fixedNewstyle, noZeroes = 1, 2
	optionAbort, optionGo   = 2, 7
	answerAck, answerInfo   = 1, 3
	answerUnsupported       = 1<<31 + 1

	canFlush, canFUA = 1<<0 | 1<<2, 1 << 3
	flagFUA          = 1 << 0

	commandRead, commandWrite, commandDisconnect, commandFlush = 0, 1, 2, 3

	eio, einval = 5, 22

	maxRequest = 64 << 20 // a client may send at most 32 MiB by default
)

type option struct {
	Magic          uint64
	Option, Length uint32
}

type answer struct {
	Magic                uint64
	Option, Type, Length uint32
}

type request struct {
	Magic          uint32
	Flags, Command uint16
	Cookie, Offset uint64
	Length         uint32
}

type reply struct {
	Magic, Errno uint32
	Cookie       uint64
}

// Serve accepts one connection and serves the disk on it until the client disconnects or ends.
func (d *Disk) Serve(l net.Listener) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	c := bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))
	if err = d.negotiate(c); err == nil {
		err = d.transmit(c)
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !isReset(err) {
		return fmt.Errorf("serve a disk: %w", err)
	}
	return nil
}

// isReset reports whether the client ended without reading all replies.
func isReset(err error) bool {
	_, ok := errors.AsType[*net.OpError](err)
	return ok
}

func (d *Disk) negotiate(c *bufio.ReadWriter) error {
	hello := struct {
		Server, Option uint64
		Flags          uint16
	}{magicServer, magicOption, fixedNewstyle | noZeroes}
	if err := send(c, hello); err != nil {
		return err
	}
	var flags uint32
	if err := binary.Read(c, binary.BigEndian, &flags); err != nil {
		return err
	}
	for {
		var o option
		if err := binary.Read(c, binary.BigEndian, &o); err != nil {
			return err
		}
		if o.Magic != magicOption || o.Length > maxRequest {
			return fmt.Errorf("option with magic %#x and %d bytes", o.Magic, o.Length)
		}
		if _, err := c.Discard(int(o.Length)); err != nil {
			return err
		}
		switch o.Option {
		case optionGo: // the name of the export does not matter
			info := struct {
				answer
				Info  uint16 // NBD_INFO_EXPORT
				Size  uint64
				Flags uint16
			}{answer{magicAnswer, o.Option, answerInfo, 12}, 0, uint64(d.size), canFlush | canFUA}
			return send(c, info, answer{magicAnswer, o.Option, answerAck, 0})
		case optionAbort:
			return errors.Join(send(c, answer{magicAnswer, o.Option, answerAck, 0}), io.EOF)
		default:
			if err := send(c, answer{magicAnswer, o.Option, answerUnsupported, 0}); err != nil {
				return err
			}
		}
	}
}

func (d *Disk) transmit(c *bufio.ReadWriter) error {
	for {
		var r request
		if err := binary.Read(c, binary.BigEndian, &r); err != nil {
			return err
		}
		if r.Magic != magicCall || r.Length > maxRequest {
			return fmt.Errorf("request with magic %#x for %d bytes", r.Magic, r.Length)
		}
		var data []byte
		if r.Command == commandRead || r.Command == commandWrite {
			data = make([]byte, r.Length)
		}
		if r.Command == commandWrite {
			if _, err := io.ReadFull(c, data); err != nil {
				return err
			}
		}
		var err error
		switch r.Command {
		case commandRead:
			err = d.Read(data, int64(r.Offset)) //nolint:gosec // a wrong offset is negative, which Read refuses
		case commandWrite:
			if r.Flags&flagFUA != 0 {
				err = d.WriteThrough(data, int64(r.Offset)) //nolint:gosec // as above
			} else {
				err = d.Write(data, int64(r.Offset)) //nolint:gosec // as above
			}
		case commandFlush:
			err = d.Flush()
		case commandDisconnect:
			return nil
		}
		back := reply{Magic: magicReply, Cookie: r.Cookie}
		switch {
		case err != nil:
			back.Errno = eio
		case r.Command > commandFlush:
			back.Errno = einval
		}
		if r.Command != commandRead || back.Errno != 0 {
			data = nil
		}
		if err := send(c, back, data); err != nil {
			return err
		}
	}
}

func send(c *bufio.ReadWriter, values ...any) error {
	for _, v := range values {
		if err := binary.Write(c, binary.BigEndian, v); err != nil {
			return err
		}
	}
	return c.Flush()
}
