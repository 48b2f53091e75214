#!/bin/bash
sort /app/words.txt | rev > /app/answer.txt
