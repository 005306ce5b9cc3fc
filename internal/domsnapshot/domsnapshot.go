// Package domsnapshot reads what Chrome answers to DOMSnapshot.captureSnapshot.
package domsnapshot

import "strings"

// Snapshot is the used part of an answer. It has the documents of one process, including closed
// shadow roots. Numbers other than indexes of nodes are indexes into Strings; -1 means none.
type Snapshot struct {
	Documents []Document `json:"documents"`
	Strings   []string   `json:"strings"`
}

// Document is one document of a snapshot.
type Document struct {
	URL     int     `json:"documentURL"`
	ScrollX float64 `json:"scrollOffsetX"`
	ScrollY float64 `json:"scrollOffsetY"`
	Nodes   struct {
		ParentIndex          []int   `json:"parentIndex"`
		NodeType             []int   `json:"nodeType"`
		NodeName             []int   `json:"nodeName"`
		NodeValue            []int   `json:"nodeValue"`
		BackendNodeID        []int64 `json:"backendNodeId"`
		Attributes           [][]int `json:"attributes"`
		ShadowRootType       Rare    `json:"shadowRootType"`
		PseudoType           Rare    `json:"pseudoType"`
		TextValue            Rare    `json:"textValue"`  // of text areas: their present content
		InputValue           Rare    `json:"inputValue"` // of inputs: their present content
		InputChecked         Rare    `json:"inputChecked"`
		ContentDocumentIndex Rare    `json:"contentDocumentIndex"`
		IsClickable          Rare    `json:"isClickable"`
	} `json:"nodes"`
	Layout struct {
		NodeIndex   []int       `json:"nodeIndex"`
		Styles      [][]int     `json:"styles"`
		Bounds      [][]float64 `json:"bounds"`
		PaintOrders []int       `json:"paintOrders"`
	} `json:"layout"`
}

// Rare is a value, or just a flag, that few nodes have: Value[i] belongs to node Index[i].
type Rare struct {
	Index []int `json:"index"`
	Value []int `json:"value"`
}

// ByNode has the value of each node that has one; -1 for a flag.
func (r Rare) ByNode() map[int]int {
	m := make(map[int]int, len(r.Index))
	for i, node := range r.Index {
		m[node] = -1
		if i < len(r.Value) {
			m[node] = r.Value[i]
		}
	}
	return m
}

// Text returns the string with an index; empty if there is none.
func (s *Snapshot) Text(i int) string {
	if i < 0 || i >= len(s.Strings) {
		return ""
	}
	return s.Strings[i]
}

// Attributes are the attributes of a node, by name in lower case; none if there is no such node.
func (s *Snapshot) Attributes(d *Document, node int) map[string]string {
	if node < 0 || node >= len(d.Nodes.Attributes) {
		return nil
	}
	list := d.Nodes.Attributes[node]
	m := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		m[strings.ToLower(s.Text(list[i]))] = s.Text(list[i+1])
	}
	return m
}
