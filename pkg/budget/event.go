package budget

import "time"

// Event is something that the budget learns. The types below are all there are.
type Event interface{ event() }

// Asked carries the asks of a few milliseconds, and is answered one by one.
type Asked struct {
	Asks []Ask `json:"asks"`
}

// Returned gives permits back: of marks that were lifted, and of cases that are over.
type Returned struct {
	Permits []Permit `json:"permits"`
}

// Permit names a permit.
type Permit struct {
	Device  string  `json:"device"`
	Epoch   int64   `json:"epoch"`
	Purpose Purpose `json:"purpose"`
	// Unused tells that it stays where a mark of it was seen: who gives it back knows only
	// that it wants none any more.
	Unused bool `json:"unused,omitempty"`
}

// Standing is a mark that exists.
type Standing struct {
	Device string  `json:"device"`
	Epoch  int64   `json:"epoch"`
	Scopes []Scope `json:"scopes,omitempty"`
	// Cost and Costs are as those of an Ask.
	Cost  int    `json:"cost,omitempty"`
	Costs []Size `json:"costs,omitempty"`
}

// Counted tells which marks exist, all of them, and how many eligible devices there
// are. Levels, not what happened on the way to them.
type Counted struct {
	// Marks are all marks in the cluster, with what is pending on a node.
	Marks []Standing `json:"marks,omitempty"`
	// Same tells that they are those that the same starter told last, instead of Marks.
	Same bool `json:"same,omitempty"`
	// Sizes are of the cluster, of classes and of whatever else is counted; nil leaves
	// what was told before.
	Sizes []Size `json:"sizes,omitempty"`
	By    string `json:"by,omitempty"`
}

// Woke tells that time went on.
type Woke struct{}

func (Asked) event()    {}
func (Returned) event() {}
func (Counted) event()  {}
func (Message) event()  {}
func (Woke) event()     {}

// Answer is the answer to one ask.
type Answer struct {
	Device  string `json:"device"`
	Epoch   int64  `json:"epoch"`
	Granted bool   `json:"granted"`
	// Unknown tells that it isn't known which marks exist, so that nothing is granted:
	// whoever asks should find out and tell.
	Unknown bool `json:"unknown,omitempty"`
	// For is the scope that is full or paused, Why says so for people.
	For Scope  `json:"for,omitzero"`
	Why string `json:"why,omitempty"`
	// Again is when to ask again unless an offer comes before.
	Again time.Duration `json:"again,omitempty"`
}

// Offer tells somebody who waited that there is a permit now.
type Offer struct {
	Device  string  `json:"device"`
	Epoch   int64   `json:"epoch"`
	Purpose Purpose `json:"purpose"`
}

// Outcome is what comes of an event.
type Outcome struct {
	// Answers has one for each ask, in their order.
	Answers []Answer
	// Turns has one for each device that asked whether it is its turn, in their order.
	Turns []Turn
	// Offers are for those who waited.
	Offers []Offer
	// Tell asks for all marks of whoever only said that they are the same.
	Tell bool
	// Refusal is why an operator's message was refused.
	Refusal error
}
