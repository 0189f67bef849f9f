// Uses every method of gomemcache's client with one server, and prints what each call returns, one line for each.
// The lines for a memcached and for the proxy must be the same. CAS tokens are not printed: each server has its own.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// A call that takes longer than this has failed. The client's own limit of 0.5 s is too short for a busy machine.
const timeout = 20 * time.Second

func main() {
	client := memcache.New(os.Args[1])
	client.Timeout = timeout
	client.MaxIdleConns = 8
	sayMethods(client)
	say("ping", client.Ping())
	say("flush all", client.FlushAll())
	storage(client)
	keys(client)
	values(client)
	manyKeys(client)
	compareAndSwap(client)
	counters(client)
	expiration(client)
	deletion(client)
	concurrently(client)
	connections(client, os.Args[1])
}

// Prints one line. Values that are long are printed as their length and hash.
func say(call string, results ...interface{}) {
	words := []string{}
	for _, result := range results {
		switch result := result.(type) {
		case nil:
			words = append(words, "ok")
		case error:
			words = append(words, "error: "+result.Error())
		case *memcache.Item:
			words = append(words, describe(result))
		default:
			words = append(words, fmt.Sprint(result))
		}
	}
	fmt.Printf("%s: %s\n", call, strings.Join(words, " | "))
}

// Prints the names of all methods: a test checks that this program calls each of them.
func sayMethods(client *memcache.Client) {
	names := []string{}
	for index, kind := 0, reflect.TypeOf(client); index < kind.NumMethod(); index++ {
		names = append(names, kind.Method(index).Name)
	}
	fmt.Println("methods: " + strings.Join(names, " "))
}

func describe(item *memcache.Item) string {
	if item == nil {
		return "no item"
	}
	value := fmt.Sprintf("%q", item.Value)
	if len(item.Value) > 60 {
		value = fmt.Sprintf("%d bytes %x", len(item.Value), sha256.Sum256(item.Value))
	}
	return fmt.Sprintf("%q flags %d value %s token %t", item.Key, item.Flags, value, item.CasID != 0)
}

func get(client *memcache.Client, call, key string) {
	item, err := client.Get(key)
	say(call, item, err)
}

func item(key, value string) *memcache.Item {
	return &memcache.Item{Key: key, Value: []byte(value)}
}

func storage(client *memcache.Client) {
	say("set", client.Set(&memcache.Item{Key: "a", Value: []byte("one"), Flags: 4294967295}))
	get(client, "get after set", "a")
	say("add of an existing key", client.Add(item("a", "two")))
	say("add", client.Add(item("added", "two")))
	say("replace of a missing key", client.Replace(item("missing", "three")))
	say("replace", client.Replace(item("added", "three")))
	say("append to a missing key", client.Append(item("missing", "x")))
	say("append", client.Append(item("a", "+")))
	say("prepend to a missing key", client.Prepend(item("missing", "x")))
	say("prepend", client.Prepend(item("a", "-")))
	get(client, "get after append and prepend", "a")
	get(client, "get after replace", "added")
	get(client, "get of a missing key", "missing")
}

func keys(client *memcache.Client) {
	for _, length := range []int{1, 249, 250} {
		key := strings.Repeat("k", length)
		say(fmt.Sprintf("set with a key of %d bytes", length), client.Set(item(key, "v")))
		get(client, fmt.Sprintf("get with a key of %d bytes", length), key)
	}
	// The client refuses these itself; a proxy must not change that.
	say("set with a key of 251 bytes", client.Set(item(strings.Repeat("k", 251), "v")))
	say("set with a space in the key", client.Set(item("a b", "v")))
	say("set with an empty key", client.Set(item("", "v")))
	for _, key := range []string{"Hello_世界", "\xff\xfe", "{tag}:1", "/a/b", "noreply", "0", "-1", "get"} {
		say(fmt.Sprintf("set with the key %q", key), client.Set(item(key, key)))
		get(client, fmt.Sprintf("get with the key %q", key), key)
	}
	// The line is longer than any key.
	for _, key := range []string{"", strings.Repeat("k", 251)} {
		_, err := client.Get(key)
		say(fmt.Sprintf("get with a key of %d bytes that may be invalid", len(key)), err)
	}
}

func values(client *memcache.Client) {
	for _, length := range []int{0, 1, 2, 1023, 1024, 16383, 16384, 65536, 1 << 19, 1048000} {
		value := bytes.Repeat([]byte{'0', '\r', '\n', 0, 0xff, 'E', 'N', 'D'}, length/8+1)[:length]
		say(fmt.Sprintf("set of %d bytes", length), client.Set(&memcache.Item{Key: "large", Value: value}))
		get(client, fmt.Sprintf("get of %d bytes", length), "large")
	}
	// memcached refuses this one, and drops the earlier value.
	say("set of 2 MiB", client.Set(&memcache.Item{Key: "large", Value: make([]byte, 2<<20)}))
	get(client, "get after a set of 2 MiB", "large")
	say("append of 2 MiB", client.Append(&memcache.Item{Key: "a", Value: make([]byte, 2<<20)}))
	get(client, "get after an append of 2 MiB", "a")
	for _, value := range []string{"END\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n", "\r\n", "ERROR\r\n"} {
		say(fmt.Sprintf("set of %q", value), client.Set(item("reply", value)))
		get(client, fmt.Sprintf("get of %q", value), "reply")
	}
}

func manyKeys(client *memcache.Client) {
	names := []string{}
	for index := 0; index < 300; index++ {
		names = append(names, fmt.Sprintf("many:%d", index))
		if index%3 != 0 {
			if err := client.Set(&memcache.Item{Key: names[index], Value: []byte(names[index]), Flags: uint32(index)}); err != nil {
				say("set of many keys", err)
			}
		}
	}
	for _, count := range []int{1, 2, 127, 128, 129, 300} {
		sayItems(client, fmt.Sprintf("get of %d keys", count), names[:count])
	}
	sayItems(client, "get of no keys", nil)
	sayItems(client, "get of missing keys", []string{"missing", "missing too"[:7], "missing:2"})
	sayItems(client, "get of one key twice", []string{"many:1", "many:1"})
	sayItems(client, "get of many keys, one invalid", []string{"many:1", "many 2"})
}

func sayItems(client *memcache.Client, call string, names []string) {
	found, err := client.GetMulti(names)
	described := []string{}
	for _, item := range found {
		described = append(described, describe(item))
	}
	sort.Strings(described)
	say(call, len(found), fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(described, "\n")))), err)
}

func compareAndSwap(client *memcache.Client) {
	say("set before cas", client.Set(item("cas", "one")))
	first, err := client.Get("cas")
	say("get before cas", first, err)
	again, err := client.Get("cas")
	say("the token stays", first.CasID == again.CasID, err)
	first.Value, first.Flags = []byte("two"), 7
	say("cas", client.CompareAndSwap(first))
	say("cas with the old token", client.CompareAndSwap(again))
	get(client, "get after cas", "cas")
	changed, _ := client.Get("cas")
	say("the token changes", changed.CasID != again.CasID)
	say("cas of a deleted key: delete", client.Delete("cas"))
	say("cas of a deleted key", client.CompareAndSwap(changed))
	say("cas with token 0", client.Set(item("cas", "three")), client.CompareAndSwap(item("cas", "four")))
	byMulti, err := client.GetMulti([]string{"cas", "a"})
	say("get of several keys before cas", len(byMulti), err)
	byMulti["cas"].Value = []byte("five")
	say("cas with a token of a get of several keys", client.CompareAndSwap(byMulti["cas"]))
	touched, err := client.GetAndTouch("cas", 0)
	say("get and touch returns no token", touched, err)
}

func counters(client *memcache.Client) {
	count := func(call string, change func(string, uint64) (uint64, error), key string, delta uint64) {
		value, err := change(key, delta)
		say(call, value, err)
	}
	count("increment of a missing key", client.Increment, "count", 1)
	count("decrement of a missing key", client.Decrement, "count", 1)
	say("set of a counter", client.Set(item("count", "10")))
	count("increment", client.Increment, "count", 5)
	count("decrement to one digit", client.Decrement, "count", 9)
	get(client, "get of a decremented counter", "count")
	count("decrement below 0", client.Decrement, "count", 100)
	count("increment by the largest number", client.Increment, "count", 18446744073709551615)
	count("increment beyond the largest number", client.Increment, "count", 2)
	for _, value := range []string{"", "text", "12x", " 1", "1 ", "-1", "18446744073709551615", "18446744073709551616"} {
		say(fmt.Sprintf("set of the counter %q", value), client.Set(item("count", value)))
		count(fmt.Sprintf("increment of %q", value), client.Increment, "count", 1)
		count(fmt.Sprintf("decrement of %q", value), client.Decrement, "count", 1)
	}
}

func expiration(client *memcache.Client) {
	soon := &memcache.Item{Key: "soon", Value: []byte("v"), Expiration: 2}
	never := &memcache.Item{Key: "touched", Value: []byte("v"), Expiration: 2}
	date := &memcache.Item{Key: "date", Value: []byte("v"), Expiration: int32(time.Now().Unix() + 1000)}
	say("set for 2 s", client.Set(soon), client.Set(never))
	say("set until a date", client.Set(date))
	get(client, "get before a date", "date")
	say("set until a date that has passed", client.Set(&memcache.Item{Key: "past", Value: []byte("v"), Expiration: 1600000000}))
	get(client, "get after a date", "past")
	say("set for less than 0 s", client.Set(&memcache.Item{Key: "negative", Value: []byte("v"), Expiration: -1}))
	get(client, "get after less than 0 s", "negative")
	say("touch of a missing key", client.Touch("missing", 100))
	say("touch", client.Touch("touched", 100))
	say("set for a touch with less than 0 s", client.Set(item("gone", "v")), client.Touch("gone", -1))
	get(client, "get after a touch with less than 0 s", "gone")
	found, err := client.GetAndTouch("touched", 200)
	say("get and touch", found, err)
	found, err = client.GetAndTouch("missing", 200)
	say("get and touch of a missing key", found, err)
	time.Sleep(3100 * time.Millisecond)
	get(client, "get after 2 s", "soon")
	get(client, "get after 2 s and a touch", "touched")
	get(client, "get before a date, later", "date")
}

func deletion(client *memcache.Client) {
	say("delete of a missing key", client.Delete("missing"))
	say("delete", client.Set(item("deleted", "v")), client.Delete("deleted"), client.Delete("deleted"))
	say("delete all", client.Set(item("a", "v")), client.DeleteAll())
	get(client, "get after delete all", "a")
	say("set after delete all", client.Set(item("a", "again")))
	get(client, "get after delete all and set", "a")
	say("flush all", client.FlushAll())
	get(client, "get after flush all", "a")
}

// Every goroutine has keys of its own, and all of them have one counter.
func concurrently(client *memcache.Client) {
	say("set of the shared counter", client.Set(item("shared", "0")))
	var group sync.WaitGroup
	var mutex sync.Mutex
	problems := []string{}
	for worker := 0; worker < 16; worker++ {
		group.Add(1)
		go func(worker int) {
			defer group.Done()
			for round := 0; round < 200; round++ {
				if err := work(client, worker, round); err != nil {
					mutex.Lock()
					problems = append(problems, err.Error())
					mutex.Unlock()
				}
			}
		}(worker)
	}
	group.Wait()
	sort.Strings(problems)
	say("16 goroutines", len(problems), strings.Join(problems, "; "))
	get(client, "the shared counter", "shared")
}

func work(client *memcache.Client, worker, round int) error {
	key, value := fmt.Sprintf("worker:%d:%d", worker, round%10), strings.Repeat(fmt.Sprint(worker), round*50)
	if err := client.Set(item(key, value)); err != nil {
		return err
	}
	found, err := client.Get(key)
	if err != nil {
		return err
	}
	if string(found.Value) != value {
		return errors.New("another value than was set")
	}
	_, err = client.Increment("shared", 1)
	return err
}

func connections(client *memcache.Client, address string) {
	say("close", client.Close())
	get(client, "get after close", "shared")
	say("close again", client.Close())
	// The selector of servers by name, and a connection that the caller makes.
	servers := new(memcache.ServerList)
	say("servers", servers.SetServers(address))
	other := memcache.NewFromSelector(servers)
	other.Timeout = timeout
	dialled := 0
	other.DialContext = func(_ context.Context, network, address string) (net.Conn, error) {
		dialled++
		return net.DialTimeout(network, address, timeout)
	}
	get(other, "get with a connection of the caller", "shared")
	say("connections of the caller", dialled, other.Ping(), other.Close())
}
